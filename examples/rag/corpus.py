"""What there is to know: one short passage for each town, and questions in other words."""

from __future__ import annotations

import random
from dataclasses import dataclass

TOWNS = 160
_BEGIN = "bal cor dun elm fal gar hol ist jor kil lum mar nor oss pel"
_END = "by den fell gate ham holm kirk ley mere mouth stead thorpe wick worth"
_CRAFTS = "glass paper clocks cheese boats rope lace bells bricks saddles lamps salt"
_RIVERS = "Avel Brenn Cressa Dorva Enn Fossar Gild Harn Iller Jass"
_FOUNDERS = "Adela Bruno Clara Doran Edith Faro Greta Hugo Ines Jonas Klara Lorenz"
# Question and the field that answers it; the words differ from those of the passages.
_ASKED = (
    ("What do people make in {town}?", "craft"),
    ("Which water runs past {town}?", "river"),
    ("Who started {town}?", "founder"),
)


@dataclass(frozen=True)
class Town:
    """One town: its passage holds every fact about it."""

    name: str
    craft: str
    river: str
    founder: str

    def passage(self) -> str:
        """The text that is indexed."""
        return (
            f"{self.name} lies on the river {self.river}. It is known for its {self.craft}. "
            f"The town was founded by {self.founder}."
        )


def towns() -> list[Town]:
    """The same towns in every program."""
    chance = random.Random(7)
    names = [(first + last).capitalize() for first in _BEGIN.split() for last in _END.split()]
    return [
        Town(
            name,
            craft=chance.choice(_CRAFTS.split()),
            river=chance.choice(_RIVERS.split()),
            founder=chance.choice(_FOUNDERS.split()),
        )
        for name in chance.sample(names, TOWNS)
    ]


def questions() -> list[tuple[str, str, str]]:
    """(question, town it is about, right answer), every question for every town."""
    return [
        (text.format(town=town.name), town.name, getattr(town, field))
        for town in towns()
        for text, field in _ASKED
    ]
