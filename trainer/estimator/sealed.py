"""What a subclass of an estimator may not do: change how an estimator works."""

from tpuserve.errors import InvalidSetting

_OURS = "trainer."


def check_no_overrides(kind: type) -> None:
    """Refuses a subclass that overrides a member of an estimator.

    A model_fn is what makes an estimator another one: a subclass gives it to the constructor.

    Raises:
      InvalidSetting: names the subclass and the members.
    """
    bases = [each for each in kind.__mro__ if each.__module__.startswith(_OURS)]
    members = {name for base in bases for name in vars(base) if not name.startswith("__")}
    for derived in kind.__mro__:
        if derived in bases:
            return
        overridden = sorted(members.intersection(vars(derived)))
        if overridden:
            raise InvalidSetting(
                f"subclasses of {bases[0].__name__} cannot override its members, and "
                f"{derived.__name__} overrides {', '.join(overridden)}. Give the constructor a "
                f"model_fn that does what they should."
            )
