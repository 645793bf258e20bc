"""Refuses subclasses that override members of an estimator."""

from tpuserve.errors import InvalidSetting

_MODULE_PREFIX = "trainer."


def check_no_overrides(estimator_type: type) -> None:
    """Check that no subclass outside of `trainer` overrides a member of an estimator.

    tf.estimator refuses such subclasses too. A user-defined estimator must instead pass its own
    model_fn to the constructor.
    """
    bases = [base for base in estimator_type.__mro__ if base.__module__.startswith(_MODULE_PREFIX)]
    members = {name for base in bases for name in vars(base) if not name.startswith("__")}
    for derived in estimator_type.__mro__:
        if derived in bases:
            return
        overridden = sorted(members.intersection(vars(derived)))
        if overridden:
            raise InvalidSetting(
                f"subclasses of {bases[0].__name__} cannot override its members, and "
                f"{derived.__name__} overrides {', '.join(overridden)}. Give the constructor a "
                f"model_fn that has the effect of these overrides."
            )
