"""Hooks and wrappers on somebody else's model, taken off again by `remove`.

A tap looks at a value and returns nothing: what the model computes, and with which calls, stays as it was.
"""

import contextlib


class Taps(contextlib.AbstractContextManager):
    def __init__(self):
        self._undo = []

    def on_input(self, module, look):
        """`look(tensor)` with the first argument of each call of `module`."""

        def hook(_module, args, kwargs):
            look(args[0] if args else next(iter(kwargs.values())))

        self._undo.append(module.register_forward_pre_hook(hook, with_kwargs=True).remove)

    def on_call(self, module, look):
        """`look(args, kwargs)` before each call of `module`."""

        def hook(_module, args, kwargs):
            look(args, kwargs)

        self._undo.append(module.register_forward_pre_hook(hook, with_kwargs=True).remove)

    def on_output(self, module, look):
        """`look(output)` after each call of `module`."""

        def hook(_module, _args, output):
            look(output)

        self._undo.append(module.register_forward_hook(hook).remove)

    def wrap(self, owner, name, around):
        """Replaces the function `owner.name` by `around(original)` until `remove`."""
        own = name in vars(owner)
        original = getattr(owner, name)

        def undo():
            if own:
                setattr(owner, name, original)
            else:
                delattr(owner, name)

        setattr(owner, name, around(original))
        self._undo.append(undo)

    def remove(self):
        while self._undo:
            self._undo.pop()()

    def __exit__(self, *_):
        self.remove()
