"""A lazy model is loaded by its first request, and unloaded when memory is short."""

import threading

import pytest

from server.servables.servable import Servable, State
from tests.server.lazy_models import SECONDS, LazyModels, lazy_models
from tpuserve.errors import Code, CodedError, InvalidInput, TpuserveError


def unsupported() -> TpuserveError:
    return CodedError("the model has an op of another world.", Code.UNIMPLEMENTED)


def test_model_is_listed_at_the_start_and_loaded_by_its_first_request() -> None:
    with lazy_models("ab") as models:
        assert models.states() == {"a": State.START, "b": State.START}
        assert models.manager.is_available("a")
        assert models.manager.status("a")[0].note == "not in memory: the first request loads it"
        models.use("a")
        models.use("a")
        assert models.loads == ["a"]
        assert models.states() == {"a": State.AVAILABLE, "b": State.START}


def test_requests_that_wait_for_the_same_model_load_it_once() -> None:
    with lazy_models("a") as models:
        models.gates["a"] = threading.Event()
        waiting = [models.send("a") for _ in range(5)]
        assert not any(request.is_over.is_set() for request in waiting)
        models.gates["a"].set()
        # Two run at once, as many as a model may run; the others follow them.
        for request in waiting:
            assert request.is_over.wait(SECONDS)
            models.finish(request)
        assert models.loads == ["a"]


def test_another_model_answers_while_one_is_loading() -> None:
    with lazy_models("ab") as models:
        models.use("b")
        models.gates["a"] = threading.Event()
        waiting = models.send("a")
        models.use("b")
        assert not waiting.is_over.is_set()


def test_least_recently_used_model_is_unloaded_for_the_next_that_does_not_fit() -> None:
    with lazy_models("abc", limit_bytes=10) as models:
        models.use("a")
        models.use("b")
        models.use("a")
        models.use("c")
        assert models.loaded() == {"a", "c"}
        assert models.residency.loaded_bytes() == {"a": 4, "c": 4}
        models.use("b")
        assert models.loaded() == {"b", "c"}


def test_as_many_models_are_unloaded_as_a_large_one_needs() -> None:
    with lazy_models("abcd", limit_bytes=12, sizes={"d": 7}) as models:
        for name in "abc":
            models.use(name)
        models.use("d")
        assert models.loaded() == {"c", "d"}


def test_busy_model_is_never_unloaded() -> None:
    with lazy_models("abc", limit_bytes=8) as models:
        busy = models.begin("a")
        models.use("b")
        models.use("c")
        assert models.loaded() == {"a", "c"}
        models.finish(busy)


def test_model_whose_batch_still_runs_is_never_unloaded() -> None:
    with lazy_models("abc", limit_bytes=8) as models:
        models.use("a")
        with models.manager.get_servable_handle("a"):
            models.use("b")
            models.use("c")
            assert models.loaded() == {"a", "c"}


def test_request_waits_for_memory_until_another_model_is_idle() -> None:
    with lazy_models("ab", limit_bytes=4) as models:
        busy = models.begin("a")
        waiting = models.send("b")
        assert not waiting.is_over.wait(0.2)
        models.finish(busy)
        assert waiting.is_started.wait(SECONDS)
        assert models.loaded() == {"b"}


def test_request_that_waits_too_long_for_memory_is_told_the_sizes() -> None:
    with lazy_models("ab", limit_bytes=4, timeout_seconds=0.05) as models:
        busy = models.begin("a")
        waiting = models.send("b")
        while not waiting.is_over.wait(0.01):
            models.queues.refuse_expired()
        assert waiting.error is not None
        assert waiting.error.code is Code.RESOURCE_EXHAUSTED
        assert str(waiting.error) == (
            "model b needs about 4 B, and models that are busy or pinned use 4 B of the "
            "--max_model_memory of 4 B. Send the request again later, or raise the limit."
        )
        models.finish(busy)
        models.use("a")


def test_request_that_waits_too_long_for_a_load_is_told_so() -> None:
    with lazy_models("a", timeout_seconds=0.05) as models:
        models.gates["a"] = threading.Event()
        waiting = models.send("a")
        while not waiting.is_over.wait(0.01):
            models.queues.refuse_expired()
        assert str(waiting.error) == (
            "model a is still being loaded after 0.05 s, its --lazy_load_timeout. Send the "
            "request again later."
        )
        models.gates["a"].set()
        models.use("a")


def test_nothing_is_unloaded_for_a_request_whose_client_has_left() -> None:
    with lazy_models("abc", limit_bytes=4) as models:
        busy = models.begin("a")
        left = models.send("b")
        assert models.queues.withdraw(left)
        models.finish(busy)
        models.use("a")
        assert models.loads == ["a"]


def test_pinned_model_is_loaded_at_once_and_stays() -> None:
    with lazy_models("ab", limit_bytes=8) as models:
        models.list_versions("pinned", 1)
        models.wait(lambda: models.loaded() == {"pinned"})
        models.use("a")
        models.use("b")
        assert models.loaded() == {"pinned", "b"}


def test_pinned_model_that_does_not_fit_beside_the_pinned_ones_is_refused_at_once() -> None:
    with lazy_models("", limit_bytes=7) as models:
        models.list_versions("first", 1)
        models.wait(lambda: models.loaded() == {"first"})
        models.list_versions("second", 1)
        models.wait(lambda: models.manager.is_converged("second"))
        (status,) = models.manager.status("second")
        assert status.error is not None
        assert status.error.code is Code.RESOURCE_EXHAUSTED
        assert str(status.error) == (
            "model second needs about 4 B, and models that stay in memory use 4 B of the "
            "--max_model_memory of 7 B. Unload one of them, raise the limit, or serve with "
            "--lazy_load."
        )


def test_model_above_the_limit_is_refused_when_it_is_listed() -> None:
    with lazy_models("a", limit_bytes=3) as models:
        (status,) = models.manager.status("a")
        assert status.state is State.END
        assert str(status.error) == (
            "model a needs about 4 B, which is more than the --max_model_memory of 3 B. Raise the "
            "limit."
        )
        assert not models.manager.is_available("a")


def test_model_that_its_check_refuses_is_never_loaded() -> None:
    def check(servable: Servable) -> None:
        raise InvalidInput("saved_model.pb is damaged.")

    with lazy_models("a", pause_seconds=60, check=check) as models:
        assert str(models.manager.status("a")[0].error) == "saved_model.pb is damaged."
        with pytest.raises(TpuserveError, match="model a cannot be loaded: saved_model.pb is dam"):
            models.send("a")
        assert not models.loads


def test_each_request_gets_the_error_of_the_load_and_only_a_later_one_tries_again() -> None:
    with lazy_models("a", pause_seconds=60) as models:
        models.failures["a"] = unsupported()
        assert models.error_of("a") == (
            "model a cannot be loaded: the model has an op of another world. The server tries "
            "again when its files change, or at the first request after 60 s."
        )
        for _ in range(3):
            with pytest.raises(TpuserveError, match="cannot be loaded: the model has an op"):
                models.send("a")
        assert models.loads == ["a"]


def test_first_request_after_the_pause_tries_again() -> None:
    with lazy_models("a", pause_seconds=0) as models:
        models.failures["a"] = unsupported()
        assert "op of another world" in models.error_of("a")
        del models.failures["a"]
        models.use("a")
        assert models.loads == ["a", "a"]


def test_retry_whose_client_has_left_leaves_the_model_to_the_next_request() -> None:
    with lazy_models("ab", limit_bytes=4, pause_seconds=0) as models:
        models.failures["a"] = unsupported()
        assert "op of another world" in models.error_of("a")
        del models.failures["a"]
        left = models.send("a")
        models.queues.withdraw(left)
        models.use("b")
        models.use("a")
        assert models.loaded() == {"a"}


def test_loaded_model_swaps_to_its_new_version_and_an_unloaded_one_lists_it() -> None:
    with lazy_models("ab") as models:
        models.use("a")
        models.list_versions("a", 2)
        models.list_versions("b", 2)
        models.wait(lambda: models.manager.status("a")[1].state is State.END)
        assert [status.state for status in models.manager.status("a")] == [
            State.AVAILABLE,
            State.END,
        ]
        assert [status.state for status in models.manager.status("b")] == [State.START, State.END]
        assert models.loads == ["a", "a"]


def test_new_version_that_does_not_fit_beside_the_old_one_waits_for_the_next_request() -> None:
    with lazy_models("a", limit_bytes=7) as models:
        models.use("a")
        models.list_versions("a", 2)
        models.wait(lambda: models.manager.status("a")[1].state is State.END)
        assert models.states() == {"a": State.START}
        models.use("a")
        with models.manager.get_servable_handle("a") as servable:
            assert servable.version == 2


def test_version_listed_during_a_load_that_does_not_fit_beside_it_delays_no_request() -> None:
    with lazy_models("a", limit_bytes=7) as models:
        models.gates["a"] = threading.Event()
        waiting = models.send("a")
        while not models.loads:
            threading.Event().wait(0.01)
        models.list_versions("a", 2)
        models.gates["a"].set()
        assert waiting.is_started.wait(SECONDS)
        models.finish(waiting)
        models.wait(lambda: models.manager.status("a")[1].state is State.END)
        models.use("a")
        assert models.manager.status("a")[0].state is State.AVAILABLE


def test_model_that_is_removed_answers_its_waiting_requests() -> None:
    with lazy_models("ab", limit_bytes=4) as models:
        busy = models.begin("a")
        waiting = models.send("b")
        models.list_versions("b")
        assert waiting.is_started.wait(SECONDS)
        assert not models.manager.is_available("b")
        models.finish(busy)


def test_thread_that_asks_outside_of_the_queues_waits_for_the_load() -> None:
    with lazy_models("a") as models, models.manager.get_servable_handle("a") as servable:
        assert str(servable) == "a/1"


def test_reader_of_statistics_loads_nothing() -> None:
    with lazy_models("a") as models:
        handle = models.manager.get_servable_handle("a", must_be_loaded=True)
        with pytest.raises(TpuserveError, match="It is not in memory: a request that runs"):
            handle.acquire()
        assert not models.loads


def test_all_requests_run_while_more_models_than_fit_are_asked_for_and_get_versions() -> None:
    with lazy_models("abcdefgh", limit_bytes=12) as models:

        def ask(name: str) -> None:
            for _ in range(20):
                ask_once(models, name)

        threads = [threading.Thread(target=ask, args=(name,)) for name in "abcdefgh"]
        for thread in threads:
            thread.start()
        for version in range(2, 12):
            for name in "abcdefgh":
                models.list_versions(name, version)
        for thread in threads:
            thread.join(SECONDS)
            assert not thread.is_alive()


def ask_once(models: LazyModels, name: str) -> None:
    request = models.begin(name)
    with models.manager.get_servable_handle(name, must_be_loaded=True):
        assert sum(models.residency.loaded_bytes().values()) <= 12
    models.finish(request)
