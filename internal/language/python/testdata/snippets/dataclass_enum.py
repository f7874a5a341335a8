from dataclasses import dataclass, field, asdict
from enum import Enum
class Color(Enum):
    RED = 1
    BLUE = 2
@dataclass(order=True)
class Item:
    price: float
    name: str = field(compare=False)
    color: Color = Color.RED
items = sorted([Item(2.5, "pen"), Item(1.0, "cap", Color.BLUE)])
print(items[0], asdict(items[1])["name"])

# Output:
# Item(price=1.0, name='cap', color=<Color.BLUE: 2>) pen
