"""The key table as Textual bindings."""

from __future__ import annotations

from textual.binding import Binding, BindingType

from eagle3_tui.keymap import in_scope


def bindings(*scopes: str) -> list[BindingType]:
    """The bindings of ``scopes``.

    An action with `{place}` hears which of its keys it was. What leaves the panel works above every dialog, too.
    """
    return [
        Binding(
            pressed, (key.action or key.id).format(place=place), key.help, show=False, priority=key.id == "interrupt"
        )
        for key in in_scope(*scopes)
        for place, pressed in enumerate(key.keys, 1)
    ]
