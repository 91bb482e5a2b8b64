"""What a run keeps of each probe, `--capture SPEC`:

    SPEC  = ITEM[,ITEM...]      later items override earlier ones
    ITEM  = LEVEL | PATTERN=LEVEL | budget=BYTES | rows=N | sketch=K
    LEVEL = off | digest | stats | rows | full          (each includes the ones before it)

BYTES takes KiB, MiB, GiB. Default: stats, budget=1GiB, rows=64, sketch=auto (256 at step -1, the first two and the
last step, 64 between). Example: "stats,blocks.0.*=full,budget=4GiB".
"""

import re

from .errors import UsageError
from .probes import glob_pattern

LEVELS = ("off", "digest", "stats", "rows", "full")
_UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


class CaptureSpec:
    def __init__(self, text="stats"):
        self.text = text
        self.rules = [("*", "stats")]
        self.budget_bytes = 1 << 30
        self.sample_rows = 64
        self.sketch_k = 0  # auto
        for item in text.split(","):
            self._item(item.strip())
        self._compiled = [(glob_pattern(pattern), level) for pattern, level in self.rules]

    def _item(self, item):
        key, equals, value = (part.strip() for part in item.rpartition("="))
        if not equals:
            if item not in LEVELS:
                raise UsageError(f"--capture: '{item}' is neither a level ({', '.join(LEVELS)}) nor NAME=VALUE")
            self.rules.append(("*", item))
        elif key == "budget":
            match = re.fullmatch(r"(\d+)(KiB|MiB|GiB)?", value)
            if not match:
                raise UsageError(f"--capture: '{item}' needs a number of bytes such as 4GiB")
            self.budget_bytes = int(match[1]) * _UNITS[match[2] or ""]
        elif key == "rows":
            if not value.isdecimal() or int(value) < 1:
                raise UsageError(f"--capture: '{item}' needs a number of rows of at least 1")
            self.sample_rows = int(value)
        elif key == "sketch":
            if value not in ("auto", "64", "128", "256"):
                raise UsageError(f"--capture: '{item}' needs 64, 128, 256 or auto")
            self.sketch_k = 0 if value == "auto" else int(value)
        else:
            if not key or value not in LEVELS:
                raise UsageError(f"--capture: '{item}' needs PATTERN={'|'.join(LEVELS)}")
            self.rules.append((key, value))

    def check(self, probes):
        """UsageError for a pattern that matches no probe."""
        for (pattern, _), (compiled, _) in zip(self.rules, self._compiled):
            if not any(compiled.fullmatch(probe.name) for probe in probes.probes):
                raise UsageError(f"--capture: no probe matches '{pattern}'")

    def level(self, probe):
        for pattern, level in reversed(self._compiled):
            if pattern.fullmatch(probe):
                return level
        raise AssertionError("the first rule matches everything")

    def sketch(self, step, steps):
        if self.sketch_k:
            return self.sketch_k
        return 256 if step < 2 or step == steps - 1 else 64
