"""Expected failures, each with the process exit code it maps to."""


class CaptureError(Exception):
    """One sentence that names the file and the fact."""

    exit_code = 70


class UsageError(CaptureError):
    exit_code = 2


class BadInput(CaptureError):
    exit_code = 3


class EnvironmentFailure(CaptureError):
    """No such device, a missing library, a full disk."""

    exit_code = 5
