"""Adapters of latent attention, experts and multi-token prediction, against what peft prints."""

from dataclasses import replace

from service.catalogue import shipped_catalogue
from service.estimator import Estimate, Model, Recipe
from service.estimator.question import MatrixName, Method, Software, StackName, Versions
from tests.ask import ask
from tests.cases import each_case

LATENT: tuple[MatrixName, ...] = ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj")
GROUPED: tuple[MatrixName, ...] = ("q_proj", "k_proj", "v_proj", "o_proj")
MLPS: tuple[MatrixName, ...] = ("gate_proj", "up_proj", "down_proj")


def preset(name: str) -> Model:
    """The model of a preset."""
    model = shipped_catalogue().models[name].model
    assert model is not None
    return model


def adapted(
    name: str, targets: tuple[MatrixName, ...], stack: StackName | Software = "transformers", method: str = "lora"
) -> Estimate:
    """The answer to a preset with adapters of rank 8."""
    model = preset(name)
    how = Method(name="qlora" if method == "qlora" else "lora", rank=8, targets=targets)
    return ask(model, Recipe(sequence_length=64, method=how, stack=stack))


@each_case(
    ("name", "targets", "printed"),
    [
        ("deepseek-v3", LATENT, (48_503_296, 671_074_907_648)),
        ("deepseek-v3", MLPS, (3_770_679_296, 674_797_083_648)),
        ("deepseek-v3", ("all-linear",), (3_822_627_328, 674_849_031_680)),
        ("kimi-k2", LATENT, (30_513_664, 1_026_438_723_072)),
        ("kimi-k2", MLPS, (5_851_054_080, 1_032_259_263_488)),
        ("kimi-k2", ("all-linear",), (5_885_192_704, 1_032_293_402_112)),
        ("glm-4.5", GROUPED, (34_668_544, 352_832_483_328)),
        ("glm-4.5", MLPS, (2_624_716_800, 355_422_531_584)),
        ("glm-4.5", ("all-linear",), (2_663_144_704, 355_460_959_488)),
    ],
)
def test_trained_and_all_parameters_are_those_that_peft_prints(
    name: str, targets: tuple[MatrixName, ...], printed: tuple[int, int]
) -> None:
    # peft 0.21.2 get_nb_trainable_parameters on the classes of transformers 5.24.0, which drop the depths
    for method in ("lora", "qlora"):
        answer = adapted(name, targets, method=method)
        counts = answer.parameters
        assert (counts.trained, counts.total + counts.adapters) == printed
        drops = "transformers has no multi-token prediction: the weights of 1 depth(s) are dropped when it loads them"
        assert (drops in answer.assumptions) == (name != "kimi-k2")


def test_experts_that_are_modules_have_an_adapter_for_each_matrix() -> None:
    before = Software(name="transformers", versions=Versions(transformers="4.57"))
    experts, shared = 58 * 256 * 8 * (3 * (7168 + 2048)), 58 * 8 * 3 * (7168 + 2048)
    dense = 3 * 8 * 3 * (7168 + 18432)
    assert adapted("deepseek-v3", MLPS, before).parameters.trained == experts + shared + dense


def test_depths_are_trained_and_adapted_where_the_stack_has_them() -> None:
    model = preset("glm-4.5")
    depth = 8 * ((5120 + 96 * 128) * 2 + (5120 + 8 * 128) * 2)
    with_depth, without = (adapted("glm-4.5", GROUPED, name).parameters for name in ("megatron-core", "transformers"))
    assert with_depth.trained - without.trained == depth
    for stack in ("megatron-core", "torchtitan"):
        answer = ask(model, Recipe(sequence_length=64, stack=stack))
        assert answer.resolved.model.num_nextn_predict_layers == 1
    for stack in ("transformers", "deepspeed", "fsdp1"):
        answer = ask(model, Recipe(sequence_length=64, stack=stack))  # type: ignore[arg-type]
        bare = ask(replace(model, num_nextn_predict_layers=0), Recipe(sequence_length=64, stack=stack))  # type: ignore[arg-type]
        assert answer.parameters == bare.parameters
        assert answer.memory == bare.memory
