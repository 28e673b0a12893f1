"""The key table as Textual bindings."""

from __future__ import annotations

from textual.binding import Binding, BindingType

from eagle3_tui.keymap import in_scope


def bindings(*scopes: str) -> list[BindingType]:
    """The bindings of ``scopes``; each keeps the id of its key, so that a key map can move it."""
    return [
        Binding(",".join(key.keys), key.action or key.id, key.help, show=False, id=key.id)
        for key in in_scope(*scopes)
        if key.keys
    ]
