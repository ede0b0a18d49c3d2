"""Resources of Java and .NET: values are translated, and earlier translations stay."""

import re

import pytest
from catalogues import filled, loud, reverse, same

JAVA = r"""# A comment = a
! another \
title = Big dogs
  open : Open the \
         file
caf\u00e9=It''s {0} here
count %d dogs
empty=
lead=\  a b
odd=\ud83d
message=It's {0}
uni=Caf\u00e9 bar
"""
NET = """<?xml version="1.0" encoding="utf-8"?>
<root>
  <resheader name="version"><value>2.0</value></resheader>
  <data name="a" xml:space="preserve"><value>Big {0} &amp; dogs</value><comment>b c</comment></data>
  <data name="b" type="System.Drawing.Size"><value>12, 13</value></data>
  <data name="&gt;&gt;x.Name"><value>x y</value></data>
  <data name="c"><value/></data>
  <data name="d"><value><![CDATA[a < b]]></value></data>
</root>
"""


def test_values_of_java() -> None:
    made = filled("a.properties", JAVA.encode(), loud).decode()
    changed = {
        "Big dogs": "BIG DOGS",
        "Open the \\\n         file": "OPEN THE FILE",
        "It''s {0} here": "IT''S {0} HERE",
        "=\\  a b": "=\\  A B",
        "=Caf\\u00e9 bar": "=CAF\\u00C9 BAR",
        "count %d dogs": "count %d DOGS",
    }
    expected = JAVA
    for old, new in changed.items():
        expected = expected.replace(old, new)
    assert made == expected
    assert filled("a.properties", "a=café b".encode(), loud).decode() == "a=CAFÉ B"
    assert filled("a.properties", "a=café b".encode("latin-1"), loud).decode("latin-1") == "a=CAFÉ B"


def test_texts_of_net() -> None:
    made = filled("a.resx", NET.encode(), reverse).decode()
    assert made == NET.replace("Big {0} &amp; dogs", "dogs &amp; {0} Big").replace("<![CDATA[a < b]]>", "b &lt; a")


@pytest.mark.parametrize(("name", "source"), [("a.properties", JAVA), ("a.resx", NET)])
def test_a_second_run_changes_nothing_and_fills_what_is_missing(name: str, source: str) -> None:
    assert filled(name, source.encode(), same).decode() == source
    first = filled(name, source.encode(), loud)
    assert filled(name, source.encode(), reverse, existing=first) == first
    shorter = re.sub(r"count .*\n|  <data name=\"a\".*\n", "", first.decode())
    completed = filled(name, source.encode(), loud, existing=shorter.encode()).decode()
    assert sorted(completed.split("\n")) == sorted(first.decode().split("\n"))
