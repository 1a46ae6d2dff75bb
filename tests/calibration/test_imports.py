"""Files of other tools are read as their tools define them; a fault is reported with its place."""

import json
import pickle
from pathlib import Path

import pytest

from service.calibration.tool_files import read_gemm_table, read_memory_snapshot, read_nccl_tests, refuse_pickle
from service.errors import Refused

PUBLISHED = Path(__file__).parent / "published_outputs"
DEVICES = "".join(f"#  Rank  {rank} Pid 1 on host device  {rank} [0x00] Tesla V100-SXM2-32GB\n" for rank in range(8))
OLD = """#                                                     out-of-place                       in-place
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
delta01:8074:8074 [0] NCCL INFO Launch mode Parallel
           8             2   float     sum     9.75    0.00    0.00  0e+00     9.73    0.00    0.00  0e+00
        1024           256   float     sum    10.40    0.10    0.17  0e+00    10.11    0.10    0.18  0e+00
"""
"""A table of 2020: no root, `error`. Source: NVIDIA/nccl issue 439, comment of 2020-12-15; devices made up."""


def published(name: str) -> str:
    return (PUBLISHED / name).read_text(encoding="utf-8")


def problem(refused: pytest.ExceptionInfo[Refused]) -> tuple[str, str]:
    (one,) = refused.value.problems
    assert one.fix
    return one.field, one.code


@pytest.mark.parametrize(
    ("name", "operation", "device", "nodes", "sizes", "last_seconds"),
    [
        ("a100_2_nodes.txt", "all_reduce", "NVIDIA A100-SXM4-40GB", 2, 1, 0.091945),
        ("a100_newer.txt", "all_reduce", "NVIDIA A100-SXM4-40GB", 1, 1, 0.0805288),
        ("h100_2_nodes.txt", "all_reduce", "NVIDIA H100 80GB HBM3", 2, 7, 0.047743),
        ("gb10_all_gather.txt", "all_gather", "NVIDIA GB10", 2, 3, 0.0956109),
    ],
)
def test_published_outputs_are_read(
    name: str, operation: str, device: str, nodes: int, sizes: int, last_seconds: float
) -> None:
    (record,) = read_nccl_tests(published(name))
    assert record.environment is not None
    assert record.environment.device == device
    assert len(record.measurements) == 2 * sizes
    assert {one.operation for one in record.measurements} == {operation}
    assert {one.shape["nodes"] for one in record.measurements} == {nodes}
    assert [one.shape["in_place"] for one in record.measurements[:2]] == [False, True]
    assert record.measurements[-1].value == pytest.approx(last_seconds)


def test_what_nccl_says_of_itself_is_kept() -> None:
    (record,) = read_nccl_tests(published("gb10_all_gather.txt"))
    assert record.environment is not None
    assert record.environment.nccl == "2.28.9"


@pytest.mark.parametrize("mark", ["[1,0]<stdout>:", "[1,0]<stdout>: ", "[0] ", "0: ", "    "])
def test_marks_of_launchers_are_passed_over(mark: str) -> None:
    plain = published("h100_2_nodes.txt")
    marked = "\n".join(mark + line for line in plain.splitlines())
    assert read_nccl_tests(marked) == read_nccl_tests(plain)


def test_older_tables_are_read_where_the_collective_is_named() -> None:
    (record,) = read_nccl_tests(DEVICES + OLD, "all_reduce")
    assert [one.value for one in record.measurements] == pytest.approx([9.75e-6, 9.73e-6, 10.4e-6, 10.11e-6])
    with pytest.raises(Refused) as refused:
        read_nccl_tests(DEVICES + OLD)
    assert problem(refused) == ("operation", "unknown_collective")


def test_numbers_that_came_out_wrong_are_told() -> None:
    wrong = published("a100_2_nodes.txt").replace("222.88      0", "222.88      3")
    (record,) = read_nccl_tests(wrong)
    assert [one.relative_error_fraction for one in record.measurements] == [1.0, 0.0]


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("(us)", "(xs)", ("time", "unknown_unit")),
        ("   type ", "   kind ", ("type", "missing_column")),
        ("90330  118.87", "fast  118.87", ("time", "not_a_number")),
        ("118.87  222.88", "118.87  111.44", ("busbw", "contradiction")),
        ("device  0 [0x0f] NVIDIA A100", "device  0 [0x0f] NVIDIA B200", ("devices", "several_devices")),
        ("Rank ", "Rang ", ("devices", "no_devices")),
        ("10737418240    2684354560", "#10737418240    2684354560", ("", "no_rows")),
        ("222.88      0    91945  116.78  218.96      0", "222.88", ("time", "short_row")),
    ],
)
def test_what_is_wrong_with_an_output_is_named(before: str, after: str, told: tuple[str, str]) -> None:
    text = published("a100_2_nodes.txt")
    assert before in text
    with pytest.raises(Refused) as refused:
        read_nccl_tests(text.replace(before, after))
    assert problem(refused) == told


def test_collectives_that_no_formula_speaks_of_are_refused() -> None:
    with pytest.raises(Refused) as refused:
        read_nccl_tests(published("gb10_all_gather.txt").replace("all_gather_perf", "broadcast_perf"))
    assert problem(refused) == ("operation", "unknown_collective")


def test_an_empty_file_is_refused_whatever_its_format() -> None:
    for read in (read_nccl_tests, read_gemm_table, lambda text: read_memory_snapshot(text, "H100")):
        with pytest.raises(Refused) as refused:
            read("  \n")
        assert problem(refused) == ("", "empty")


HEADER = "device,dtype,rows,columns,inner,microseconds,repeats"
LINE = "NVIDIA H100 80GB HBM3,bf16,8192,4096,4096,480,20"


def test_a_table_of_products_is_read_with_its_unit() -> None:
    (record,) = read_gemm_table(f"\ufeff{HEADER}\r\n{LINE}\r\n\r\n")
    (one,) = record.measurements
    assert one.value == pytest.approx(480e-6)
    assert one.repeats == 20
    assert one.shape == {"rows": 8192, "columns": 4096, "inner": 4096, "dtype": "bf16", "copies": 1}
    rated = "inner,rows,device,dtype,tflop_per_s,columns,copies\n4096,8192,H100,bf16,500,4096,2\n"
    (record,) = read_gemm_table(rated)
    assert record.measurements[0].value == pytest.approx(2 * 2 * 8192 * 4096 * 4096 / 5e14)


def test_devices_of_one_table_are_told_apart() -> None:
    records = read_gemm_table(f"{HEADER},threads\n{LINE},\nAMD EPYC 7763,fp32,512,512,512,9000,20,2\n")
    assert [record.environment.kind for record in records if record.environment] == ["cuda", "cpu"]
    assert [record.environment.threads for record in records if record.environment] == [None, 2]


def test_a_table_tells_what_a_processor_computes_with() -> None:
    cells = "Xeon,bf16,512,512,512,9000,20,"
    records = read_gemm_table(f"{HEADER},instructions\n{cells}AVX2 amx_tile amx_bf16\n{cells}\n")
    told = [record.environment.instructions for record in records if record.environment]
    assert told == [("amx_bf16", "amx_tile", "avx2"), ()]
    with pytest.raises(Refused) as refused:
        read_gemm_table(f"{HEADER},instructions\n{cells}avx-512\n")
    (problem,) = refused.value.problems
    assert (problem.field, problem.code) == ("instructions", "not_a_choice")
    assert "avx512f" in problem.fix


@pytest.mark.parametrize(
    ("text", "told", "place"),
    [
        (f"{HEADER},speed\n{LINE},1\n", ("column 8", "unknown_column"), "line 1"),
        (f"{HEADER},repeats\n{LINE},1\n", ("repeats", "repeated_column"), "line 1"),
        (f"{HEADER.replace(',inner', '')}\n{LINE}\n", ("inner", "missing_column"), "line 1"),
        (f"{HEADER.replace('microseconds', 'low_seconds')}\n{LINE}\n", ("seconds", "unknown_unit"), "line 1"),
        (f"{HEADER},seconds\n{LINE},1\n", ("seconds", "unknown_unit"), "line 1"),
        (f"{HEADER}\n{LINE}\n{LINE.replace('480', '0,48')}\n", ("", "ragged"), "line 3"),
        (f"{HEADER}\n{LINE.replace('480', '-1')}\n", ("microseconds", "not_a_number"), "line 2"),
        (f"{HEADER}\n{LINE.replace('480', 'inf')}\n", ("microseconds", "not_a_number"), "line 2"),
        (f"{HEADER}\n{LINE.replace('8192', '8192.5')}\n", ("rows", "not_a_whole_number"), "line 2"),
        (f"{HEADER}\n{LINE.replace('bf16', 'int3')}\n", ("dtype", "not_a_choice"), "line 2"),
        (f"{HEADER}\n{LINE.replace('NVIDIA H100 80GB HBM3', '')}\n", ("device", "required"), "line 2"),
        (f"{HEADER}\n", ("", "empty"), ""),
    ],
)
def test_what_is_wrong_with_a_table_is_named_with_its_line(text: str, told: tuple[str, str], place: str) -> None:
    with pytest.raises(Refused) as refused:
        read_gemm_table(text)
    assert problem(refused) == told
    assert place in str(refused.value)


SNAPSHOT = {
    "segments": [{"device": 0, "total_size": 100, "allocated_size": 10}, {"device": 1, "total_size": 7}],
    "device_traces": [
        [
            {"action": "segment_alloc", "size": 100},
            {"action": "alloc", "size": 60},
            {"action": "alloc", "size": 30},
            {"action": "free_requested", "size": 60},
            {"action": "free_completed", "size": 60},
            {"action": "segment_alloc", "size": 20},
            {"action": "segment_free", "size": 20},
            {"action": "free_completed", "size": 20},
        ],
        [],
    ],
}


def test_the_peak_of_a_snapshot_is_found_in_its_trace() -> None:
    (record,) = read_memory_snapshot(json.dumps(SNAPSHOT), "H100")
    found = {(one.operation, one.shape["device"]): one.value for one in record.measurements}
    assert found == {("allocated_peak", 0): 90, ("reserved_peak", 0): 120, ("reserved_peak", 1): 7}


def test_a_pickle_is_refused_before_it_is_read() -> None:
    content = pickle.dumps(SNAPSHOT)
    for given, name in ((content, ""), (b"{}", "snapshot.pickle"), (b"PK\x03\x04", ""), (b"{}", "model.PT")):
        with pytest.raises(Refused) as refused:
            refuse_pickle(given, name)
        assert problem(refused) == ("", "pickle")
    refuse_pickle(json.dumps(SNAPSHOT).encode(), "snapshot.json")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("nothing", ("", "not_json")),
        ("[1]", ("", "not_an_object")),
        ("{}", ("segments", "missing_column")),
        ('{"segments": [], "device_traces": 3}', ("device_traces", "missing_column")),
        ('{"segments": []}', ("segments", "empty")),
        ('{"segments": [{"total_size": -5}]}', ("total_size", "not_a_whole_number")),
    ],
)
def test_what_is_wrong_with_a_snapshot_is_named(text: str, told: tuple[str, str]) -> None:
    with pytest.raises(Refused) as refused:
        read_memory_snapshot(text, "H100")
    assert problem(refused) == told
