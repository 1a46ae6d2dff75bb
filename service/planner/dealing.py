"""How may the layers of a model be dealt to the chunks of a pipeline?"""

from collections.abc import Iterator
from dataclasses import replace

from service.estimator.parallelism.pipeline import dealt_layers, layers_by_cost
from service.estimator.question import Layout, Model
from service.estimator.workload import Job
from service.planner.freedom import Axes


def dealings(job: Job, axes: Axes, stages: int) -> Iterator[tuple[int, tuple[Layout, ...]]]:
    """The pipelines of so many stages, for each number of virtual stages.

    Layers are dealt evenly, with embedding and head counted as layers or not. Where one chunk a stage cannot be dealt
    evenly, they are dealt in the uneven ways that published runs use; where no number of several chunks can, all but
    the last are full. A stack that deals by cost does so.

    Args:
        job: the job
        axes: what virtual stages and dealing may be
        stages: stages of the pipeline [1]

    Yields:
        virtual stages, and the layouts with their layers dealt; none where the layers do not fill them
    """
    if axes.stage_layers or job.stack.deals_by_cost:
        for virtual in axes.virtual_pipeline:
            yield virtual, _as_said(job, axes, _plain(axes, stages, virtual))
        return
    even = {virtual: _even(job.model, axes, stages, virtual) for virtual in axes.virtual_pipeline}
    never_even = not any(layouts for virtual, layouts in even.items() if virtual > 1)
    for virtual, layouts in even.items():
        may_differ = (False, False) in axes.ends_in_split and (virtual == 1 or never_even)
        yield virtual, layouts or (_uneven(job.model, _plain(axes, stages, virtual)) if may_differ else ())


def _plain(axes: Axes, stages: int, virtual: int) -> Layout:
    return Layout(
        pipeline=stages,
        virtual_pipeline=virtual,
        virtual_group=axes.virtual_group or stages,
        rank_order=axes.rank_order[0],
    )


def _as_said(job: Job, axes: Axes, plain: Layout) -> tuple[Layout, ...]:
    """The one dealing that the caller says, or that the stack makes."""
    chunks, layers = plain.pipeline * plain.virtual_pipeline, job.model.num_hidden_layers
    if axes.stage_layers:
        fills = len(axes.stage_layers) == chunks and sum(axes.stage_layers) == layers
        return (replace(plain, stage_layers=axes.stage_layers),) if fills else ()
    if chunks > 1:
        return (replace(plain, stage_layers=layers_by_cost(chunks, job.model)),) if chunks <= layers else ()
    return (plain,)


def _even(model: Model, axes: Axes, stages: int, virtual: int) -> tuple[Layout, ...]:
    plain, found = _plain(axes, stages, virtual), []
    chunks = stages * virtual
    for embedding, loss in axes.ends_in_split:
        counted = replace(plain, embedding_in_split=embedding, loss_in_split=loss)
        layers = dealt_layers(counted, model)
        if layers is not None and chunks > 1:
            found.append(replace(counted, stage_layers=layers))
        elif not (embedding or loss) and model.num_hidden_layers % chunks == 0:
            found.append(counted)
    return tuple(found)


def _uneven(model: Model, plain: Layout) -> tuple[Layout, ...]:
    chunks, layers = plain.pipeline * plain.virtual_pipeline, model.num_hidden_layers
    ways = [full_but_last(layers, chunks)]
    if plain.virtual_pipeline == 1:
        ways += [balanced_layers(layers, chunks), larger_first(layers, chunks)]
    return tuple(replace(plain, stage_layers=way) for way in dict.fromkeys(ways) if way is not None)


def balanced_layers(layers: int, chunks: int) -> tuple[int, ...] | None:
    """Layers of each chunk, as even as they go with embedding and head counted as a layer each.

    Formula:
        L + 2 dealt over n chunks, the larger shares in the middle and last of them first; one fewer at both ends

    Args:
        layers: layers of the model, L [1]
        chunks: stages x virtual stages, n [1]

    Returns:
        layers of each chunk in the order of the model [1]; None where a chunk would have none

    Source:
        Llama 3, arXiv:2407.21783, section 3.3.2 (one layer fewer on the first and the last stage)

    >>> balanced_layers(32, 5)
    (5, 7, 7, 7, 6)
    """
    if chunks < 2:
        return None
    each, more = divmod(layers + 2, chunks)
    dealt = [each] * chunks
    order = [*range(chunks - 2, 0, -1), chunks - 1, 0]
    for place in order[:more]:
        dealt[place] += 1
    dealt[0] -= 1
    dealt[-1] -= 1
    return tuple(dealt) if min(dealt) > 0 else None


def larger_first(layers: int, chunks: int) -> tuple[int, ...] | None:
    """Layers of each chunk, as even as they go, the larger shares first.

    Formula:
        floor(L / n), one more in the first L mod n

    Args:
        layers: layers of the model, L [1]
        chunks: stages x virtual stages, n [1]

    Returns:
        layers of each chunk in the order of the model [1]; None where a chunk would have none

    Source:
        deepspeedai/DeepSpeed@edaa722 runtime/utils.py partition_uniform

    >>> larger_first(32, 5)
    (7, 7, 6, 6, 6)
    """
    each, more = divmod(layers, chunks)
    return (each + 1,) * more + (each,) * (chunks - more) if each else None


def full_but_last(layers: int, chunks: int) -> tuple[int, ...] | None:
    """Layers of each chunk, the same in all but the last, which has the head beside what is left.

    Formula:
        q = ceil(L / n), and L - (n - 1) q in the last

    Args:
        layers: layers of the model, L [1]
        chunks: stages x virtual stages, n [1]

    Returns:
        layers of each chunk in the order of the model [1]; None where the last would have none

    Source:
        Megatron-LM decoder-last-pipeline-num-layers; Megatron-Bridge's DeepSeek-V3 and Kimi K2 in 16 chunks

    >>> full_but_last(61, 16)
    (4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 1)
    """
    each = -(-layers // chunks)
    last = layers - (chunks - 1) * each
    return (each,) * (chunks - 1) + (last,) if last > 0 else None
