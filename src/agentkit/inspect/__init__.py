"""Reports over recorded conversations: what the command line and a page show. Reads nothing but its arguments and its
own assets; no rule is born here."""
