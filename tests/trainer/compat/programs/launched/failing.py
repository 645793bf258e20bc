"""A module that raises an error while it is imported."""


def fail():
    try:
        {}["missing"]
    except KeyError as error:
        raise ValueError("the program's own mistake") from error


fail()
