"""One way to quote text that is not the sender's own: late system text, late results, summaries, notes.

Touches only its arguments.
"""

from __future__ import annotations

import html
import re


def frame(tag: str, text: str, /, **attributes: object) -> str:
    """`text` between an opening and a closing tag, each on a line of its own.

    Whatever in `text` could be read as one of these tags, in any case and spacing, has its `<` written as `&lt;`: no
    quoted text can end its frame. Attributes keep the order given; None leaves one out; values are escaped and put on
    one line. The same arguments give the same text.
    """
    # Possessive, so that a long run of blanks after a `<` is read once.
    lookalike = re.compile(rf"<(?=\s*+/?+\s*+{re.escape(tag)})", re.IGNORECASE)
    told = "".join(f' {name}="{_attribute(value)}"' for name, value in attributes.items() if value is not None)
    return f"<{tag}{told}>\n{lookalike.sub('&lt;', text)}\n</{tag}>"


def _attribute(value: object) -> str:
    return html.escape(" ".join(str(value).split()))
