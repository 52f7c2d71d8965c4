"""`dataclass` and what goes with it, as in `dataclasses`, but made without compiling anything.

Python's own imports `inspect` and compiles five functions for each class, which is a quarter of
what an agent's start takes. Here a class has what ours use: fields with defaults or factories,
`frozen`, equality, hash, repr. Not here: inheritance, class variables, order.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as `typing` has it
if TYPE_CHECKING:
    from dataclasses import asdict as asdict
    from dataclasses import dataclass as dataclass
    from dataclasses import field as field
    from dataclasses import replace as replace
else:
    FIELDS = "__dataclass_fields__"

    class _Factory:
        def __init__(self, make):
            self.make = make

    def field(*, default_factory):
        """A field whose default is made for each value."""
        return _Factory(default_factory)

    def dataclass(cls=None, *, frozen=False):
        """As a decorator, with or without brackets."""
        if cls is None:
            return lambda found: _made(found, frozen)
        return _made(cls, frozen)

    def replace(one, **changes):
        """The same value with other fields."""
        kept = {name: getattr(one, name) for name in getattr(one, FIELDS) if name not in changes}
        return type(one)(**kept, **changes)

    def asdict(one):
        """The fields as a dictionary, and so of all values in it."""
        return {name: _plain(getattr(one, name)) for name in getattr(one, FIELDS)}

    def _plain(value):
        if hasattr(type(value), FIELDS):
            return asdict(value)
        if isinstance(value, dict):
            return {key: _plain(part) for key, part in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(map(_plain, value))
        return value

    def _made(cls, frozen):
        names = tuple(cls.__annotations__)
        given = {name: cls.__dict__[name] for name in names if name in cls.__dict__}
        factories = {name: one.make for name, one in given.items() if isinstance(one, _Factory)}
        for name in factories:
            delattr(cls, name)

        def __init__(self, *values, **named):
            found = self.__dict__
            if len(values) > len(names):
                raise TypeError("%s takes %d values" % (cls.__name__, len(names)))
            found.update(zip(names, values))
            for name in names[len(values) :]:
                if name in named:
                    found[name] = named.pop(name)
                elif name in factories:
                    found[name] = factories[name]()
                elif name in given:
                    found[name] = given[name]
                else:
                    raise TypeError("%s without %s" % (cls.__name__, name))
            if named:
                raise TypeError("%s has no, or twice: %s" % (cls.__name__, ", ".join(named)))

        def _values(self):
            return tuple([getattr(self, name) for name in names])

        def __eq__(self, other):
            return _values(self) == _values(other) if type(self) is type(other) else NotImplemented

        def __hash__(self):
            return hash(_values(self))

        def __repr__(self):
            parts = ", ".join("%s=%r" % pair for pair in zip(names, _values(self)))
            return "%s(%s)" % (cls.__qualname__, parts)

        def _refuse(self, name, *_):
            raise AttributeError("%s is frozen: %s" % (cls.__name__, name))

        setattr(cls, FIELDS, names)
        cls.__init__, cls.__eq__, cls.__repr__ = __init__, __eq__, __repr__
        cls.__hash__ = __hash__ if frozen else None
        if frozen:
            cls.__setattr__ = cls.__delattr__ = _refuse
        return cls
