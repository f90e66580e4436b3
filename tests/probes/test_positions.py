import pytest

from sgpu.errors import DataError, UsageError
from sgpu.probes.states import token_index

PROMPT = ["<s>", "Capital", "of", "France", "?"]
ANSWER = ["It", "is", "Paris", "</s>"]


def test_slt_is_the_last_word_before_the_end_of_sequence():
    assert [*PROMPT, *ANSWER][token_index("slt", len(PROMPT), len(ANSWER))] == "Paris"


def test_tbg_is_the_last_token_of_the_prompt():
    assert [*PROMPT, *ANSWER][token_index("tbg", len(PROMPT), len(ANSWER))] == "?"


def test_an_answer_that_is_only_the_end_of_sequence_is_read_before_it():
    assert token_index("slt", 5, 1) == token_index("tbg", 5, 1) == 4


def test_without_an_answer_there_is_a_tbg_but_no_slt():
    assert token_index("tbg", 5, 0) == 4
    with pytest.raises(DataError, match="slt"):
        token_index("slt", 5, 0)


def test_an_empty_prompt_has_no_last_token():
    with pytest.raises(DataError, match="prompt"):
        token_index("tbg", 0, 3)


def test_an_unknown_position_is_refused_with_the_known_ones():
    with pytest.raises(UsageError, match="tbg"):
        token_index("last", 5, 3)


def test_both_are_the_states_that_generation_saw_when_it_wrote_the_first_and_the_last_token():
    """The definition in terms of steps: the first step reads TBG, the last step reads SLT."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = LlamaForCausalLM(LlamaConfig(vocab_size=50, **shape)).eval()
    prompt = torch.tensor([[1, 7, 9, 4]])
    run = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        min_new_tokens=5,
        max_new_tokens=5,
        do_sample=False,
        return_dict_in_generate=True,
        output_hidden_states=True,
    )
    with torch.no_grad():
        states = model(run.sequences, output_hidden_states=True).hidden_states[1][0]
    for position, step in (("tbg", 0), ("slt", 4)):
        expected = run.hidden_states[step][1][0, -1]
        torch.testing.assert_close(states[token_index(position, 4, 5)], expected, rtol=1e-4, atol=1e-5)
