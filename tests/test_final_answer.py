"""Which part of a chain of thought is its final answer."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgpu.final_answer import final_answer

GSM8K = (
    "Natalia sold 48/2 = <<48/2=24>>24 clips in May.\n"
    "Natalia sold 48+24 = <<48+24=72>>72 clips altogether in April and May.\n#### 72"
)

MARKED = [
    (GSM8K, "72"),
    ("so 3 * 6 = 18.\n#### $18", "$18"),
    ("#### 42\n#### 43", "43"),
    ("The answer is 5.\n#### 7", "7"),
    ("####\n1,234.50 dollars\nThank you, 5 stars", "1,234.50 dollars"),
    ("It is 9.\n#### -3.", "-3"),
]
CUED = [
    ("16 - 3 - 4 = 9, and 9 * 2 = 18. The final answer is 18.", "18"),
    ("3 + 4 = 7. So the answer is 7 apples. I hope that helps with your 2 questions!", "7 apples"),
    ("The answer is 5. Wait, I forgot one. The answer is 6.", "6"),
    ("Answer: 12\n\nQuestion: how many 3s?", "12"),
    ("**Final Answer:** 3.75 kg", "3.75 kg"),
    ("the answer is: **$1,250.00**.", "$1,250.00"),
    ("The answer is -4.5 degrees. It froze.", "-4.5 degrees"),
    ("Thus the final answer is 3/4 of the cake.", "3/4 of the cake"),
    ("THE ANSWER IS St. Petersburg. It was Leningrad.", "St. Petersburg"),
    ("The answer is J. K. Rowling.", "J. K. Rowling"),
    ("So the answer is no. There is no fracture in view 2.", "no"),
    ("The answer is No. 5, by Chanel", "No. 5, by Chanel"),
    ("The final answer is:\n\n  42 km/h\n", "42 km/h"),
    ("The answer is 50%!", "50%"),
    ("The answer is 5. As for the other answer: ", "5"),
]
LATEX = [
    (r"Hence $x = \boxed{42}$.", "42"),
    (r"We get \boxed{\frac{3}{4}}.", "3/4"),
    (r"\boxed{1} is too small, so \boxed{2\text{ metres}}", "2 metres"),
    (r"The answer is $\boxed{\$1{,}200}$ in all.", "$1,200"),
    (r"The answer is $7$.", "7"),
    (r"The answer is \(x^2 + 1\).", "x^2 + 1"),
    (r"The angle is \boxed{90^\circ}", "90°"),
    (r"the set \boxed{\{1, 2\}}", "{1, 2}"),
    (r"\boxed{70,\!000}", "70,000"),
    (r"cut off: \boxed{17", "17"),
]
NUMBERED = [
    ("first 3, then 4", "4"),
    ("She pays 5 + 6 = 11 dollars", "11"),
    ("that leaves $1,234,567.50.", "$1,234,567.50"),
    ("it fell to -12", "-12"),
    ("it fell to \u22123.5 in the end", "\u22123.5"),
    ("between 10-20", "20"),
    ("about 62.5% of them", "62.5%"),
    ("she ate 2 1/2", "2 1/2"),
    ("#### \nnothing after 8 ####", "8"),
    ("I used GPT4 on 6", "6"),
]


@pytest.mark.parametrize(("chain", "answer"), MARKED)
def test_the_last_mark_of_gsm8k_comes_first(chain: str, answer: str) -> None:
    assert final_answer(chain) == answer


@pytest.mark.parametrize(("chain", "answer"), CUED)
def test_then_the_last_sentence_that_announces_an_answer(chain: str, answer: str) -> None:
    assert final_answer(chain) == answer


@pytest.mark.parametrize(("chain", "answer"), LATEX)
def test_latex_is_read_without_its_markup(chain: str, answer: str) -> None:
    assert final_answer(chain) == answer


@pytest.mark.parametrize(("chain", "answer"), NUMBERED)
def test_then_the_last_number(chain: str, answer: str) -> None:
    assert final_answer(chain) == answer


@pytest.mark.parametrize(
    "chain", ["", " \n", "####", "The answer is: ...", r"\boxed{}", "a cat", "Answer: **"]
)
def test_text_without_any_of_these_has_none(chain: str) -> None:
    assert final_answer(chain) is None


@given(st.text() | st.text(alphabet="answer is:#$\\boxed{}.,-/0123456789\n*"))
def test_any_text_gives_none_or_one_line_that_is_not_blank(text: str) -> None:
    found = final_answer(text)
    assert found is None or (found.strip() == found != "" and len(found.splitlines()) == 1)


@given(
    st.integers(-(10**9), 10**9), st.sampled_from(["#### {}", "The answer is {}.", r"\boxed{{{}}}", "so {}"])
)
def test_a_number_comes_back_from_every_form(number: int, form: str) -> None:
    assert final_answer("First 1 and 2.\n" + form.format(number)) == str(number)


HOSTILE = [
    "#",
    "####",
    "9",
    "1,",
    "111,",
    ".5",
    "answer is ",
    "answer: \n",
    r"\boxed{",
    "\\boxed{}",
    r"\frac{",
    r"\text{a",
    "$",
    " ",
    "*",
    "1/",
    "1 ",
    "St. ",
    "{",
    "answer" + " *",
]


@pytest.mark.parametrize("piece", HOSTILE)
def test_a_million_characters_are_read_in_linear_time(piece: str) -> None:
    text = (piece * (10**6 // len(piece) + 1))[: 10**6]
    start = time.process_time()
    final_answer(text)
    final_answer("The answer is " + text)
    final_answer(text + " the answer is ")
    assert time.process_time() - start < 10  # a quadratic reading takes hours
