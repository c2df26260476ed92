"""SKILL.md, references, the catalogue, bodies, and what loading does to a context's set."""

import hashlib
from typing import Any

import msgspec
import pytest
import yaml  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from agentd.context.messages import messages
from agentd.context.record import ContextState, Entry, SkillChange, SkillRef, entry_of
from agentd.context.skill_file import Skill, SkillError, read_skill
from agentd.context.skills import (
    Step,
    body_of,
    compared,
    listing,
    load,
    loaded_names,
    merged,
    references,
    to_fetch,
    unfetched,
    unknown,
    unload,
)
from agentd.context.view import of_state, view, with_view
from tests.agentd.context.building import Talk

OLD, NEW = "a" * 64, "b" * 64


def skill_text(front: str, body: str = "Do it.\n") -> str:
    return f"---\n{front}\n---\n{body}"


SOUND = "name: pdf-forms\ndescription: Fill in forms."


# SKILL.md


def test_whole_skill_file_is_read() -> None:
    front = (
        "name: pdf-forms\ndescription: >\n  Fill in\n  forms.\nlicense: MIT\ncompatibility: Needs a terminal\n"
        "metadata: {author: ann, version: 1.5}\nallowed-tools: Read Bash(git:*)\nwhen_to_use: On a PDF\nicon: [x]\n"
    )
    skill, body = read_skill(skill_text(front, "# Ü\r\n---\nmore\n"), folder="pdf-forms")
    assert skill == Skill(
        "pdf-forms", "Fill in forms.", "On a PDF", "MIT", "Needs a terminal", {"author": "ann", "version": "1.5"},
        ("Read", "Bash(git:*)"),
    )  # fmt: skip
    assert skill.metadata == {"author": "ann", "version": "1.5"}
    assert body == "# Ü\r\n---\nmore\n"


def test_line_ends_and_a_mark_of_order_do_no_harm() -> None:
    skill, body = read_skill("\ufeff---\r\nname: a\r\ndescription: b\r\n---\r\nbody")
    assert (skill.name, skill.description, body) == ("a", "b", "body")
    assert read_skill("---\nname: a\ndescription: b\n---")[1] == ""


def test_when_to_use_may_stand_in_the_metadata() -> None:
    assert read_skill(skill_text(SOUND + "\nmetadata: {when-to-use: On a PDF}"))[0].when == "On a PDF"


@pytest.mark.parametrize("name", ["a", "a1", "1", "a-b-c", "x" * 64])
def test_names_that_are_taken(name: str) -> None:
    assert read_skill(skill_text(f"name: '{name}'\ndescription: d"), folder=name)[0].name == name


@pytest.mark.parametrize(
    ("front", "message"),
    [
        ("description: d", "no name; it takes 1 to 64 characters"),
        ("name:\ndescription: d", "no name"),
        ("name: ''\ndescription: d", "an empty name"),
        ("name: 12\ndescription: d", "name is a number; it is text, so quote it"),
        ("name: on\ndescription: d", "name is true or false"),
        ("name: " + "x" * 65 + "\ndescription: d", "name has 65 characters; it takes 1 to 64"),
        ("name: -a\ndescription: d", "name '-a'; it takes a-z, 0-9 and single hyphens"),
        ("name: a-\ndescription: d", "name 'a-'"),
        ("name: a--b\ndescription: d", "name 'a--b'"),
        ("name: Ab\ndescription: d", "name 'Ab'"),
        ("name: ä\ndescription: d", "name 'ä'"),
        ("name: a_b\ndescription: d", "name 'a_b'"),
        ("name: a/b\ndescription: d", "name 'a/b'"),
        ("name: other\ndescription: d", "name 'other' in a folder called 'pdf-forms'; give both the same name"),
        ("name: pdf-forms", "no description; it takes 1 to 1024 characters"),
        ("name: pdf-forms\ndescription: ' '", "an empty description"),
        ("name: pdf-forms\ndescription: " + "x" * 1025, "description has 1025 characters"),
        ("name: pdf-forms\ndescription: [a]", "description is a list"),
        (SOUND + "\ncompatibility: ''", "an empty compatibility; it takes 1 to 500"),
        (SOUND + "\ncompatibility: " + "x" * 501, "compatibility has 501 characters"),
        (SOUND + "\nlicense: {a: b}", "license is a mapping"),
        (SOUND + "\nmetadata: [a]", "metadata is a list; it is a mapping of texts"),
        (SOUND + "\nmetadata: {a: [b]}", "metadata 'a' is a list"),
        (SOUND + "\nallowed-tools: {a: b}", "allowed-tools is a mapping"),
        (SOUND + "\nname: pdf-forms", "'name' is there twice"),
        ("- a", "a frontmatter that is no mapping"),
        ("", "a frontmatter that is no mapping"),
        (SOUND + "\nx: a: b", "line 4: not YAML: mapping values are not allowed here; quote texts"),
        ("name: pdf-forms\ndescription: d\nx: !!python/object:os.system {}", "not YAML: could not determine"),
        (SOUND + "\nx: 2026-13-45", "a value that cannot be read (ValueError); quote it"),
        (SOUND + "\nx: " + "1" * 5000, "a value that cannot be read (ValueError)"),
        (SOUND + "\nx: \x01", "a value that cannot be read (ReaderError)"),
        (SOUND + "\nx: &a b\ny: *a", "line 4: an anchor or alias; write the value out"),
        (SOUND + "\nx: &a {<<: [*a]}", "an anchor or alias"),
        (SOUND + "\nx: " + "[" * 5000, "nested more than 8 levels deep"),
        (SOUND + "\nx: " + "y" * 70_000, "a frontmatter of more than 65536 bytes"),
    ],
)  # fmt: skip
def test_faulty_skill_file_says_what_and_where(front: str, message: str) -> None:
    with pytest.raises(SkillError) as caught:
        read_skill(skill_text(front), folder="pdf-forms", where="s/SKILL.md")
    assert str(caught.value).startswith("s/SKILL.md")
    assert message in str(caught.value)


@pytest.mark.parametrize("text", ["", "name: a", "# Title\n---\nname: a\n---\n", "----\nname: a\n---\n"])
def test_file_without_frontmatter_is_refused(text: str) -> None:
    with pytest.raises(SkillError, match="no frontmatter; the first line is ---"):
        read_skill(text)


def test_frontmatter_without_an_end_is_refused() -> None:
    with pytest.raises(SkillError, match="without an end; close it"):
        read_skill("---\nname: a\ndescription: b\n--- x\n")


@given(st.text(max_size=200))
def test_any_text_is_a_skill_or_an_error(front: str) -> None:
    try:
        skill, _ = read_skill(skill_text(front))
    except SkillError:
        return
    assert 1 <= len(skill.name) <= 64


@given(name=st.from_regex(r"[a-z0-9]+(-[a-z0-9]+){0,3}", fullmatch=True).filter(lambda n: len(n) <= 64),
       description=st.text(min_size=1, max_size=1024).filter(lambda d: d.strip() == d))  # fmt: skip
def test_written_fields_are_read_back(name: str, description: str) -> None:
    front = yaml.safe_dump({"name": name, "description": description}, allow_unicode=True)
    skill, body = read_skill(skill_text(front, "body"), folder=name)
    assert (skill.name, skill.description, body) == (name, description, "body")


# References


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("use @skill:pdf.", ("pdf",)),
        ("@skill:a/b/ and (@skill:c_d-1.2), @skill:a/b", ("a/b", "c_d-1.2")),
        ("@skill:pdfü @skill:ü @skill: @skill:... @skill:/", ("pdf",)),
        ("mail@skill:x@skill:y", ("x", "y")),
        ("@Skill:x skill:y @ skill:z", ()),
        ("@skill:" + "x" * 257, ()),
        ("@skill:" + "x" * 256, ("x" * 256,)),
    ],
)
def test_references_in_a_text(text: str, names: tuple[str, ...]) -> None:
    assert references(text) == names


def test_prefix_of_references_can_be_another() -> None:
    assert references(["use $a and $b.", "$a"], "$") == ("a", "b")
    assert references("a.b.c", "a.") == ("b.c",)
    with pytest.raises(ValueError, match="reference_prefix is empty"):
        references("x", "")


def test_finding_references_takes_linear_time() -> None:
    """Megabytes of what looks like a reference are read in milliseconds; a quadratic search would take hours."""
    for piece, prefix in (
        ("@skill:", "@skill:"),
        ("@skill:....", "@skill:"),
        ("@skill:x/", "/"),
        (".", "."),
        ("@", "@@"),
    ):
        assert len(references(piece * 400_000 + " @skill:last", prefix)) <= 1
    assert references("@skill:" * 400_000 + "last") == ("last",)
    assert references("." * 1_000_000 + "@skill:last" + "./" * 1_000_000) == ("last",)


@given(st.text(alphabet="@skil:ab./-_ ü", max_size=60))
def test_references_are_names(text: str) -> None:
    for name in references(text):
        assert f"@skill:{name}" in text
        assert name.isascii()
        assert not name.endswith((".", "/"))


# The catalogue


def test_equal_names_are_called_by_source_in_both() -> None:
    found = merged([
        ("b", [Skill("pdf", "B"), Skill("ocr", "O")]), ("a", [Skill("pdf", "A"), Skill("pdf", "again")]),
    ], [("c", "is away")])  # fmt: skip
    assert [(one.ref, one.description) for one in found.skills] == [("a/pdf", "A"), ("b/pdf", "B"), ("ocr", "O")]
    assert found.errors == (("c", "is away"), ("a", "two skills are called 'pdf'; the first one counts"))
    assert found.find("b/ocr") == found.find("ocr")
    with pytest.raises(SkillError, match="in several sources; say which: a/pdf or b/pdf"):
        found.find("pdf")
    with pytest.raises(SkillError, match=r"no skill 'x'; there is: a/pdf, b/pdf, ocr; not all sources could be read"):
        found.find("x")


def test_name_with_a_slash_hides_nothing() -> None:
    found = merged([("a", [Skill("x", "1")]), ("b", [Skill("x", "2"), Skill("a/x", "3")])])
    assert [one.ref for one in found.skills] == ["a/x", "b/a/x", "b/x"]
    assert found.find("a/x").description == "1"
    with pytest.raises(SkillError, match="there is: there are none"):
        merged([]).find("x")


sources = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c"]), st.lists(st.sampled_from(["x", "y", "a/x", "b/x"]), unique=True)),
    unique_by=lambda pair: pair[0],
)


@given(sources)
def test_every_skill_has_a_reference_of_its_own(given_sources: list[tuple[str, list[str]]]) -> None:
    found = merged([(source, [Skill(name, f"{source}:{name}") for name in names]) for source, names in given_sources])
    assert len({one.ref for one in found.skills}) == len(found.skills) == sum(len(names) for _, names in given_sources)
    assert all(found.find(one.ref) == one for one in found.skills)


def test_listing_has_a_line_for_each() -> None:
    found = merged([("a", [Skill("x", "Line\none\u2028<b>", "often"), Skill("y", "Two")])])
    assert listing(found.skills) == "- x: Line one &lt;b> (when: often)\n- y: Two"


# Bodies


def test_body_is_cut_at_a_character_with_a_mark() -> None:
    body = body_of("äöü€", 5)
    assert body.text == "äö\n[cut here: 5 of 9 bytes are left out]"
    assert (body.cut, body.hash) == (5, hashlib.sha256(body.text.encode()).hexdigest())
    whole = body_of("äöü€", 9)
    assert (whole.text, whole.cut) == ("äöü€", 0)
    assert body_of("a\ud800").text == "a\ufffd"


def test_empty_body_is_an_error() -> None:
    with pytest.raises(SkillError, match="the skill 'pdf' has no text"):
        body_of(" \n\t", name="pdf")


@given(st.text(min_size=1, max_size=60).filter(str.strip), st.integers(1, 60))
def test_cut_body_begins_like_the_whole(text: str, most: int) -> None:
    body = body_of(text, most)
    kept = body.text.partition("\n[cut here:")[0] if body.cut else body.text
    assert text.startswith(kept)
    assert bool(body.cut) == (len(text.encode()) > most)


# The set of a context


def loaded(talk: Talk, name: str, hash: str, **options: Any) -> Step:
    step = load(talk.state.skills, name, hash, **options)
    if step.change is not None:
        talk.write(step.change)
    if step.note is not None:
        talk.note(step.note)
    return step


def test_load_unload_and_load_again() -> None:
    talk = Talk()
    assert loaded(talk, "pdf", OLD).note is None
    assert loaded_names(talk.state.skills) == ("pdf",)
    assert loaded(talk, "pdf", OLD) == Step()
    step = unload(talk.state.skills, "pdf")
    assert step.change is not None
    talk.write(step.change)
    assert loaded_names(talk.state.skills) == ()
    with pytest.raises(SkillError, match="the skill 'pdf' is not loaded; loaded are: none"):
        unload(talk.state.skills, "pdf")
    loaded(talk, "pdf", OLD)
    assert loaded_names(talk.state.skills) == ("pdf",)


def test_other_arguments_are_another_load() -> None:
    talk = Talk()
    loaded(talk, "pdf", OLD, args={"page": 1})
    step = loaded(talk, "pdf", NEW, args={"page": 2})
    assert (step.change and step.change.op, step.note) == ("load", None)
    assert talk.state.skills[0].args == {"page": 2}
    assert loaded(talk, "pdf", NEW, args={"page": 2}) == Step()


def test_full_set_says_what_to_unload() -> None:
    talk = Talk()
    loaded(talk, "a", OLD)
    loaded(talk, "b", NEW)
    with pytest.raises(
        SkillError, match=r"2 skills are loaded.*skills.max_loaded.*'c' is not; first unload one of a, b"
    ):
        loaded(talk, "c", OLD, max_loaded=2)
    assert loaded(talk, "a", NEW, max_loaded=2).change is not None  # one that is there takes no more room


def test_evicted_skills_take_no_room() -> None:
    refs = [SkillRef("a", OLD, status="evicted"), SkillRef("b", OLD, status="unloaded")]
    step = load(refs, "c", NEW, max_loaded=1)
    assert step.change is not None
    assert step.change.op == "load"


def test_f35_edited_skill_is_told_with_both_hashes_in_note_and_log() -> None:
    talk = Talk()
    talk.user("go")
    loaded(talk, "pdf", OLD, args={"page": 1})
    step = compared(talk.state.skills[0], NEW)
    assert step.change is not None
    assert step.note is not None
    assert OLD in step.note
    assert NEW in step.note
    assert (step.change.op, step.change.old, step.change.new) == ("change", OLD, NEW)
    talk.write(step.change)
    assert talk.state.skills[0].hash == NEW
    assert talk.state.skills[0].args == {"page": 1}
    texts = [one.message.content for one in messages(of_state(talk.state), talk.log, bodies={OLD: "was", NEW: "is"})]
    assert [text for text in texts if "<skill" in text] == ['<skill name="pdf">\nis\n</skill>']
    assert compared(talk.state.skills[0], NEW) == Step()


def test_f36_evicted_body_is_loaded_by_the_next_reference() -> None:
    for hash, op in ((OLD, "load"), (NEW, "change")):
        talk = Talk(1_000)
        talk.exchange(9, 300)
        loaded(talk, "pdf", OLD)
        for n in range(8):
            talk.exchange(n, 300)
        assert talk.reduce().evicted == ("pdf",)
        assert [(ref.name, ref.hash, ref.status) for ref in talk.state.skills] == [("pdf", OLD, "evicted")]
        step = loaded(talk, "pdf", hash)
        assert step.change is not None
        assert step.change.op == op
        assert (step.note is not None) == (op == "change")
        shown = messages(of_state(talk.state), talk.log, bodies={hash: "text"})
        assert sum("<skill" in one.message.content for one in shown) == 1


def test_skill_that_was_loaded_again_stays_while_that_load_is_kept() -> None:
    """It was unloaded in between, so its text stood where the first load was; that one is folded now."""
    talk = Talk(1_000)
    talk.exchange(9, 300)
    loaded(talk, "pdf", OLD)
    talk.write(SkillChange("unload", "pdf", OLD, None))
    for n in range(8):
        talk.exchange(n, 300)
    loaded(talk, "pdf", OLD)
    assert talk.reduce().evicted == ()
    assert loaded_names(talk.state.skills) == ("pdf",)
    shown = messages(of_state(talk.state), talk.log, bodies={OLD: "text"})
    assert sum("<skill" in one.message.content for one in shown) == 1


def test_kept_reference_keeps_the_body_of_just_that_skill() -> None:
    talk = Talk(1_000)
    talk.exchange(9, 300)
    loaded(talk, "pdf", OLD)
    loaded(talk, "pdf-forms", NEW)
    for n in range(8):
        talk.exchange(n, 300)
    talk.user("now use @skill:pdf-forms.")
    assert talk.reduce().evicted == ("pdf",)


def test_after_a_restart_all_skills_whose_text_is_shown_are_fetched() -> None:
    refs = [SkillRef("a", OLD), SkillRef("b", NEW), SkillRef("c", OLD, status="evicted"),
            SkillRef("d", OLD, status="unloaded")]  # fmt: skip
    assert [ref.name for ref in to_fetch(refs, {})] == ["a", "b", "d"]
    assert [ref.name for ref in to_fetch(refs, {OLD: "text"})] == ["b"]


def test_notes_about_what_is_missing() -> None:
    assert unfetched(SkillRef("a", OLD), "no folder").note == (
        "The text of the skill a cannot be read any more, so it is missing: no folder"
    )
    assert unknown("x" * 300, "none").note == f"The skill '{'x' * 80}…' that is referred to cannot be loaded: none"


acts = st.lists(st.tuples(st.sampled_from(["load", "unload"]), st.sampled_from("abcde"), st.sampled_from([OLD, NEW])))


@given(acts)
def test_set_never_holds_more_than_its_most_and_log_and_row_agree(steps: list[tuple[str, str, str]]) -> None:
    state, log = ContextState(id="c"), list[Entry]()
    for act, name, hash in steps:
        try:
            step = load(state.skills, name, hash, max_loaded=3) if act == "load" else unload(state.skills, name)
        except SkillError:
            continue
        if step.change is not None:
            log.append(entry_of(state.next, step.change))
            state = with_view(state, view(log))
        names = [ref.name for ref in state.skills]
        assert len(names) == len(set(names))
        assert len(loaded_names(state.skills)) <= 3
        assert (name in loaded_names(state.skills)) == (act == "load")
        assert msgspec.json.decode(msgspec.json.encode(state.skills), type=tuple[SkillRef, ...]) == state.skills
