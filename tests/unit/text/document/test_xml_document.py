"""XML from strangers: nothing is expanded or loaded, and limits are checked before work is done."""

from __future__ import annotations

import resource
import time
from pathlib import Path

import pytest

from tests.unit.text.document.example import Read
from transduce.errors import DataError
from transduce.text.document import xml_document
from transduce.text.document.xml_document import opened, set_attribute

UNIT = "<trans-unit id='1'><source>{}</source></trans-unit>"
XLIFF = "<xliff version='1.2'><file>{}</file></xliff>"
LAUGHS = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 10))


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (f'<!DOCTYPE xliff [<!ENTITY a0 "ha">{LAUGHS}]>', "declares the entity 'a0'"),
        ('<!DOCTYPE xliff [<!ENTITY a9 SYSTEM "file:///etc/passwd">]>', "declares the entity 'a9'"),
        ('<!DOCTYPE xliff [<!ENTITY % p SYSTEM "http://localhost/x"> %p;]>', "declares the entity 'p'"),
    ],
)
def test_entities_are_rejected_before_they_cost_anything(head: str, words: str) -> None:
    began, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DataError, match=words):
        Read("xliff", (head + XLIFF.format(UNIT.format("&a9;"))).encode())
    assert time.process_time() - began < 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


def test_an_external_definition_is_not_loaded_and_its_entities_are_copied(tmp_path: Path) -> None:
    (tmp_path / "x.dtd").write_text('<!ENTITY brand "ACME">')
    head = f'<!DOCTYPE xliff SYSTEM "{tmp_path / "x.dtd"}">'
    found = Read("xliff", (head + XLIFF.format(UNIT.format("Buy &brand; now"))).encode())
    assert found.texts == ["Buy <g1/> now"]
    assert b'<target state="needs-review-translation">Kauf &brand;!</target>' in found.written(lambda _: "Kauf <g1/>!")


def test_depth_and_length_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=":1: elements are nested deeper than 500"):
        Read("xliff", b"<xliff version='1.2'>" + b"<g>" * 100_000)
    monkeypatch.setattr(xml_document, "MAX_TAG_BYTES", 2**20)
    with pytest.raises(DataError, match="longer than 1 MiB"):
        Read("xliff", b"<xliff version='1.2'><!--" + b"x" * 2**22)


def test_only_an_attribute_changes() -> None:
    assert set_attribute("<a b = 'x'  c=\"y\">", "b", "z") == "<a b = 'z'  c=\"y\">"
    assert set_attribute("<a b='x' />", "state", "new") == "<a b='x' state=\"new\" />"
    assert set_attribute("<a substate='x'>", "state", "new") == "<a substate='x' state=\"new\">"
    assert opened("<x:target a='b' />") == ("<x:target a='b'>", "</x:target>")
