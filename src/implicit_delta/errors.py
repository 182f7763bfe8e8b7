"""What can go wrong, by name: every error and warning of the library has one of two roots."""


class ImplicitDeltaError(Exception):
    """Root of all errors raised by this library."""


class ConvergenceError(ImplicitDeltaError):
    """An optimization or a linear solve did not finish, or what was given is not an optimum."""


class NotAMaximumError(ImplicitDeltaError):
    """The log-likelihood is flat or curves upwards in some direction at the given parameters.

    Parameters
    ----------
    message : str
        What happened, why it is likely and what to do.
    curvature : float, optional
        The smallest curvature of minus the log-likelihood that was met.
    """

    def __init__(self, message: str, curvature: float = float("nan")) -> None:
        super().__init__(message)
        self.curvature = curvature

    def __reduce__(self) -> tuple[type, tuple[str, float]]:
        """Keep the curvature when the error crosses a process boundary."""
        return type(self), (str(self), self.curvature)


class EvaluationError(ImplicitDeltaError):
    """The evaluation psi returned something that has no standard error."""


class UnsupportedModelError(ImplicitDeltaError):
    """The model cannot be used as given, or not with the requested method."""


class ImplicitDeltaWarning(UserWarning):
    """Root of all warnings issued by this library."""


class DriftWarning(ImplicitDeltaWarning):
    """Training stopped short of the maximum by a noticeable part of a standard error."""


class NonlinearityWarning(ImplicitDeltaWarning):
    """Psi bends noticeably within one standard error, so a symmetric interval is doubtful."""


class NotDeterministicWarning(ImplicitDeltaWarning):
    """The same parameters gave two different values."""
