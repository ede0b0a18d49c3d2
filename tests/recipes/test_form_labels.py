"""Tests of the program that labels forms of address."""

import pytest

from recipes.formality import forms_in, label_of, labelled


@pytest.mark.parametrize(
    ("src", "tgt", "label"),
    [
        ("Can you help me?", "Können Sie mir helfen?", "<formal>"),
        ("Can you help me?", "Kannst du mir helfen?", "<informal>"),
        ("Is this your car?", "Ist das euer Auto?", "<informal>"),
        ("She asked you.", "Sie hat dich gefragt.", ""),  # Sie may mean "she"
        ("You know her.", "Sie kennen ihre Mutter.", ""),
        ("You know Ihr.", "Ihr kennt Ihr.", ""),  # Ihr begins the sentence, so it may be either
        ("I see it.", "Ich sehe Sie.", ""),
        ("You can do it.", "Das geht.", ""),
        ("You and your dog.", "Sie und dein Hund.", ""),
    ],
)
def test_a_pair_that_shows_one_form_has_its_label(src: str, tgt: str, label: str) -> None:
    assert label_of(src, tgt) == label


def test_both_forms_of_a_text_are_found() -> None:
    assert forms_in("Hat er Sie gesehen, oder hat er dich gesehen?") == {"<formal>", "<informal>"}
    assert forms_in("Das geht.") == set()


def test_half_of_the_pairs_with_a_label_get_it_and_all_others_stay() -> None:
    pairs = [("Do you?", "Tun Sie?"), ("Go.", "Geh."), ("Do you?", "Tust du?")] * 10
    lines = list(labelled(*zip(*pairs, strict=True)))
    assert [line.split("> ")[-1] for line in lines] == [src for src, _ in pairs]
    assert sum(line.startswith("<") for line in lines) == 10
    assert {"<formal> Do you?", "<informal> Do you?"} & set(lines)
