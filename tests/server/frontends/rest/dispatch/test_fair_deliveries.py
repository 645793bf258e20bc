"""The responses of a large batch delay neither other models nor the other work of the loop."""

import asyncio
import threading

from server.frontends.rest.dispatch.fair_deliveries import FairDeliveries


def deliver_from_thread(
    deliveries: FairDeliveries, responses: list[str], models: list[str]
) -> None:
    """Deliver a response of each model in another thread, while the loop is busy."""

    def deliver() -> None:
        for model in models:
            deliveries.deliver(model, lambda model=model: responses.append(model))  # type: ignore[misc]

    thread = threading.Thread(target=deliver)
    thread.start()
    thread.join()


async def until_sent(responses: list[str], number: int) -> None:
    while len(responses) < number:
        await asyncio.sleep(0)


def test_a_response_of_another_model_goes_before_the_rest_of_a_batch() -> None:
    async def run() -> list[str]:
        responses: list[str] = []
        deliver_from_thread(
            FairDeliveries(asyncio.get_running_loop()), responses, ["slow"] * 100 + ["quick"]
        )
        async with asyncio.timeout(30):
            await until_sent(responses, 101)
        return responses

    assert asyncio.run(run()).index("quick") == 1


def test_other_work_of_the_loop_runs_after_eight_responses() -> None:
    async def run() -> int:
        responses: list[str] = []
        loop = asyncio.get_running_loop()
        deliver_from_thread(FairDeliveries(loop), responses, ["slow"] * 100)
        await until_sent(responses, 1)
        return len(responses)

    assert asyncio.run(run()) <= 8


def test_a_response_that_cannot_be_sent_keeps_no_other_back() -> None:
    async def run() -> list[str]:
        responses: list[str] = []
        deliveries = FairDeliveries(asyncio.get_running_loop())

        def fail() -> None:
            raise ValueError("not sent")

        thread = threading.Thread(target=deliveries.deliver, args=("a", fail))
        thread.start()
        thread.join()
        deliver_from_thread(deliveries, responses, ["b"] * 10)
        async with asyncio.timeout(30):
            await until_sent(responses, 10)
        return responses

    assert asyncio.run(run()) == ["b"] * 10
