mkdir shop tests tools packages packages/tiny
printf '# Shop\n\nPrices are summed by total.\n' > README.md
printf '[project]\nname = "shop"\nversion = "1.0"\n' > pyproject.toml
printf '__pycache__/\n.venv/\n' > .gitignore
printf 'name = "tiny"\n' > packages/tiny/__init__.py
printf '"""A shop."""\n' > shop/__init__.py
cat > shop/prices.py <<'EOF'
"""Prices."""


def total(items):
    """The sum of the prices."""
    return sum(items)
EOF
touch tests/__init__.py
cat > tests/test_prices.py <<'EOF'
import unittest

from shop.prices import total


class TotalTest(unittest.TestCase):
    def test_sum(self):
        self.assertAlmostEqual(total([0.1, 0.2]), 0.3)
EOF
printf '{"Item": ["name", "price"]}\n' > schema.json
cat > tools/generate.py <<'EOF'
import json, sys

for name, fields in json.load(open(sys.argv[1])).items():
    print(f"class {name}:\n    def __init__(self, {', '.join(fields)}):")
    for field in fields:
        print(f"        self.{field} = {field}")
EOF
cat > tools/format.py <<'EOF'
import pathlib, sys

for top in sys.argv[1:]:
    for path in pathlib.Path(top).rglob("*.py"):
        text = path.read_text()
        tidy = "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
        if text.strip() and tidy != text:
            path.write_text(tidy)
EOF
