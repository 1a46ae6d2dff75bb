"""Programs that fill in Megatron-Bridge's configuration are followed as Python would run them, and are never run."""

from typing import Any

import pytest

from service.errors import Refused
from service.features.exports.exports import import_file
from service.formats.frameworks.megatron_core.bridge_program import read_program
from service.formats.text import Unknown

RECIPE = "cfg = llama3_8b_pretrain_config()\n"

FOLLOWED: list[tuple[str, dict[str, Any]]] = [
    ("cfg.train.micro_batch_size = 2", {"train.micro_batch_size": 2}),
    ("TP = 2\ncfg.model.tensor_model_parallel_size = TP * 4 // 2", {"model.tensor_model_parallel_size": 4}),
    ("cfg.model.a = [0] * 2 + [1]", {"model.a": (0, 0, 1)}),
    ("cfg.model.a = -1\ncfg.model.b = not True", {"model.a": -1, "model.b": False}),
    ("cfg.model.a = 8\ncfg.model.b = cfg.model.a > 4", {"model.a": 8, "model.b": True}),
    ("cfg.model.a = 1 if 2 > 3 else 0", {"model.a": 0}),
    ("import torch\ncfg.optimizer.exp_avg_dtype = torch.bfloat16", {"optimizer.exp_avg_dtype": "bfloat16"}),
    ("cfg.mixed_precision = get_mixed_precision_config('fp16_mixed')", {"mixed_precision": "fp16_mixed"}),
    ("cfg.mixed_precision = bf16_with_mxfp8_mixed()", {"mixed_precision": "bf16_with_mxfp8_mixed"}),
    ("cfg.ddp.a = 1\ncfg.ddp = DDPConfig(b=2)", {"ddp._target_": "DDPConfig", "ddp.b": 2}),
    ("cfg.env_vars = {'A': 1}", {"env_vars.A": 1}),
    ("setattr(cfg.model, 'a', 3)", {"model.a": 3}),
    ("x, y = 1, 2\ncfg.model.a = y", {"model.a": 2}),
    ("def more(c, n=1):\n    c.model.a = n\nmore(cfg, 5)", {"model.a": 5}),
    ("def more(c):\n    c.model.a = 1\n    return c\ncfg = more(cfg)\ncfg.model.b = 2", {"model.a": 1, "model.b": 2}),
    ("if __name__ == '__main__':\n    cfg.model.a = 1", {"model.a": 1}),
    ("try:\n    cfg.model.a = 1\nexcept ValueError:\n    print(cfg)", {"model.a": 1}),
    ("with open('x') as f:\n    cfg.model.a = 1", {"model.a": 1}),
    ("cfg.model.a = 1\nif later:\n    cfg.model.a = 1", {"model.a": 1}),
    ("cfg.validate()\nprint(cfg.model)\npretrain(config=cfg)", {}),
    ("other = llama3_8b_sft_config()\npretrain(cfg, step)", {}),
]
"""What stands after a recipe, and the settings that it leads to."""


@pytest.mark.parametrize(("text", "settings"), FOLLOWED)
def test_what_a_program_sets_is_followed(text: str, settings: dict[str, Any]) -> None:
    found = {entry.name: entry.value for entry in read_program(f"{RECIPE}{text}\n")}
    assert found == {"recipe": "llama3_8b_pretrain_config", "program": "python", **settings}


WHILE_IT_RUNS = [
    ("cfg.model.a = args.a", "model.a", "args.a"),
    ("cfg.model.a = int(os.environ['A'])", "model.a", "int()"),
    ("cfg.model.a = 1\nif args.b:\n    cfg.model.a = 2", "model.a", "args.b"),
    ("for n in range(3):\n    cfg.model.a = n", "model.a", "range()"),
    ("cfg.model.a += 1", "model.a", "an expression"),
    ("cfg.model.layers[0] = 2", "model.layers", "cfg.model.layers"),
    ("cfg = process_config_with_overrides(cfg)", "$process_config_with_overrides()", "process_config_with_overrides()"),
    ("cfg.model = bridge.to_provider()", "$model", "bridge.to_provider()"),
    ("x = 9\n" + "x = x * x\n" * 9 + "cfg.model.a = x", "model.a", "x"),
    ("x = (1, 1)\n" + "x = (x, x)\n" * 40 + "cfg.model.a = x", "model.a", "x"),
]
"""What stands after a recipe, the setting whose value takes running it, and what that depends on."""


@pytest.mark.parametrize(("text", "name", "of"), WHILE_IT_RUNS)
def test_what_takes_running_the_program_is_not_known(text: str, name: str, of: str) -> None:
    found = {entry.name: entry.value for entry in read_program(f"{RECIPE}{text}\n")}[name]
    unknown = found[0] if isinstance(found, tuple) else found
    assert isinstance(unknown, Unknown)
    assert unknown.name == of


WRONG = [
    ("cfg = llama3_8b_pretrain_config(\n", "not_python"),
    ("import torch\nx = 1\n", "not_read"),
    (f"{RECIPE}other = llama3_8b_sft_config()\n", "several_trainings"),
    (f"{RECIPE}x = {'-' * 15_000}1\n", "too_deep"),
    (f"{RECIPE}x = {'[' * 40}{']' * 40}\n", "too_deep"),
    (f"{RECIPE}{'x = 1;' * 20_001}\n", "too_long"),
    ("def f(c):\n" + "    f(c)\n" * 6 + RECIPE + "f(cfg)\n", "too_long"),
    (RECIPE + "".join(f"cfg.a.b{n} = 1\n" for n in range(4096)), "too_long"),
    ("x = '\\0'\0", "not_python"),
]


@pytest.mark.parametrize(("text", "code"), WRONG)
def test_a_program_that_cannot_be_followed_is_refused(text: str, code: str) -> None:
    with pytest.raises(Refused) as caught:
        read_program(text)
    assert [problem.code for problem in caught.value.problems] == [code]


def test_functions_that_take_a_configuration_are_followed_where_nothing_calls_them() -> None:
    text = (
        "def configure(cfg: ConfigContainer) -> ConfigContainer:\n    cfg.train.global_batch_size = 8\n    return cfg\n"
    )
    assert [(one.name, one.value) for one in read_program(text)] == [("train.global_batch_size", 8)]


def test_arguments_of_a_recipe_are_its_fields() -> None:
    given = ("mock=True", "tensor_model_parallel_size=2", "freeze_vision_model=True")
    text = f"cfg = llama3_8b_pretrain_config(\n{''.join(f'    {one},{chr(10)}' for one in given)})\n"
    imported = import_file("megatron-bridge", text)
    assert imported.model == "llama-3-8b"
    assert imported.layout["tensor"] == 2
    assert [(one.name, one.line) for one in imported.without_effect] == [("recipe.mock", 2)]
    assert [(one.name, one.line) for one in imported.not_understood] == [("recipe.freeze_vision_model", 4)]


def test_training_in_fp32_is_read_from_a_precision_that_is_none() -> None:
    assert import_file(None, f"{RECIPE}cfg.mixed_precision = None\n").recipe["precision"] == "fp32"
    text = f"{RECIPE}cfg.mixed_precision = 'fp16_mixed'\ncfg.mixed_precision.grad_reduce_in_fp32 = {{}}\n"
    kinds = [import_file(None, text.format(value)).recipe["gradient_dtype"] for value in (True, False)]
    assert kinds == ["fp32", "fp16"]


def test_a_script_that_starts_a_program_beside_it_trains_what_that_says() -> None:
    program = f"from megatron.bridge.recipes import llama\n{RECIPE}cfg.model.tensor_model_parallel_size = 2\n"
    files = {"pretrain_own.py": program}
    imported = import_file(None, "srun torchrun --nnodes 2 --nproc-per-node 8 src/pretrain_own.py --x 1\n", files)
    assert (imported.format, imported.model) == ("megatron-bridge", "llama-3-8b")
    assert (imported.layout["tensor"], imported.layout["data"]) == (2, 4)


def test_programs_of_other_tools_are_refused_by_name() -> None:
    with pytest.raises(Refused) as caught:
        import_file(None, "from trl import SFTTrainer\nfrom x import SFTConfig\nSFTTrainer(args=SFTConfig())\n")
    assert [problem.code for problem in caught.value.problems] == ["not_read"]
