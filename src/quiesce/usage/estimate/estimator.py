"""The usage estimator of one model: its calibration, its price, and the last reported input of each conversation."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any, Final
from weakref import WeakKeyDictionary

import msgspec
from msgspec import structs

from ..._threads.latch import Latch
from ..figure import Figure, Provenance
from ..ledger import TokenUsage
from ..price_list import load_prices, loaded_price, prices_are_loaded, published_price
from ..prices import Price
from .answer_count import AnswerCounter
from .calibration import Calibration
from .content import Preamble
from .figures import Anchor, FigureEstimator, KnownConversation, SentRequest
from .framing import REMEMBERED
from .learning import LearningSample, learn, sample_of
from .message_size import MessageSizer
from .ratio import TokenRatio
from .received import ReceivedAnswer
from .vocabulary import (
    can_be_loaded,
    counts_slowly,
    load_vocabulary,
    loaded_vocabulary,
    may_have_vocabulary,
    vocabulary_of,
)

# Estimators of owners that are kept. One that is dropped begins again with what its agent was given.
_MOST_OWNERS: Final = 1000
# A count in the vocabulary would not be better than these.
_STANDS: Final = (Provenance.REPORTED, Provenance.COUNTED)


class UsageEstimator:
    """Estimates the usage of requests, and learns from the requests whose usage was reported."""

    def __init__(
        self,
        model: str,
        *,
        tokenizer: str | None = None,
        price: Price | Callable[[str], Price | None] | None = None,
        calibration: Calibration | None = None,
        is_deployment: bool = False,
    ) -> None:
        self.is_deployment: Final = is_deployment
        self._model: Final = model
        # The model that answers, which is another one than was asked for where that is a deployment.
        self._served = model
        self.calibration: Final = calibration or Calibration()
        self._price: Final = price
        # What the list of prices says of the model that answers, once it is loaded.
        self._listed: tuple[str, Price | None] | None = None
        self._tokenizer: Final = tokenizer
        self._by_owner: Final[dict[str, UsageEstimator]] = {}
        # Replaced as a whole when the vocabulary is loaded: no figure is made half in one unit and half in another.
        self._figures = FigureEstimator(TokenRatio(model, None, self.calibration), model)
        self._preamble: Preamble | None = None
        self._samples: Final[deque[LearningSample]] = deque(maxlen=REMEMBERED)
        self._conversations: Final[WeakKeyDictionary[object, KnownConversation]] = WeakKeyDictionary()
        self._kept_as: Final = f"calibration.{model}"

    @property
    def price(self) -> Price | None:
        """What the tokens of the model cost; None while the list of prices is not loaded that says it."""
        if self._price is loaded_price:
            listed = None if self.waits_for_price else self._listed
            return None if listed is None else listed[1]
        return self._price(self._served) if callable(self._price) else self._price

    def served_by(self, model: str | None) -> None:
        """An answer names the model that it comes from: for a deployment, whose own name says nothing about that."""
        if self.is_deployment and model:
            provider = self._model.partition(":")[0]
            if self._served != f"{provider}:{model}":
                self._served = f"{provider}:{model}"
                self._figures = FigureEstimator(TokenRatio(self._model, None, self.calibration), self._served)

    @property
    def waits_for_price(self) -> bool:
        """Whether the price is not known yet, because the list of prices is not loaded."""
        served, listed = self._served, self._listed
        if self._price is not loaded_price or (listed is not None and listed[0] == served):
            return False
        if not prices_are_loaded(served):
            return True
        self._listed = served, published_price(served)
        return False

    def prepare(self, conversation: object, sent: SentRequest) -> None:
        """Get ready while the provider works, so that the end of an answer, or a stop, has less to do.

        Begins to load the list of prices, in a thread, and estimates the input.
        """
        if self.waits_for_price:
            load_prices(self._served)
        self._current().prepare(sent, self._known(conversation))

    def load_price(self) -> Price | None:
        """The price, whose list is loaded here if it is not: for the start of a run that limits its cost."""
        if self.waits_for_price:
            published_price(self._served)
        return self.price

    async def price_known(self) -> None:
        """Wait until the price is known, or known not to be in the list."""
        if self.waits_for_price:
            loaded: Latch[None] = Latch()
            load_prices(self._served, lambda: loaded.set_result(None))
            await loaded.future()

    # --- The vocabulary -----------------------------------------------------------------------------------------

    def load(self, then: Callable[[], None] | None = None) -> None:
        """Begin to load the vocabulary, in a thread. `then` is called in that thread, or at once if it need not be."""
        load_vocabulary(self._served, self._tokenizer, then)

    def load_missing(self, then: Callable[[], None], *, vocabulary: bool) -> None:
        """Begin to load the list of prices, and the vocabulary where that is wanted. `then` is called as by `load`."""
        if self.waits_for_price:
            served, after = self._served, then
            then = lambda: load_prices(served, after)  # noqa: E731
        if vocabulary:
            self.load(then)
        else:
            then()

    async def loaded(self) -> None:
        """Wait until the vocabulary is loaded, if the model has one."""
        if self._is_waiting:
            loaded: Latch[None] = Latch()
            self.load(lambda: loaded.set_result(None))
            await loaded.future()

    @cached_property
    def _may_count(self) -> bool:
        """Whether there may ever be a vocabulary. Which model is behind a deployment may change."""
        return self.is_deployment or may_have_vocabulary(self._model, self._tokenizer)

    @property
    def _is_waiting(self) -> bool:
        """Whether figures could be better once the vocabulary is loaded."""
        vocabulary = self._figures.ratio.vocabulary
        if vocabulary is not None and vocabulary.is_loaded:
            return False
        return self._may_count and can_be_loaded(self._served, self._tokenizer)

    def _current(self) -> FigureEstimator:
        """What makes figures now: in the vocabulary if that is loaded, else from bytes."""
        figures = self._figures
        if not self._may_count:
            return figures
        vocabulary = loaded_vocabulary(self._served, self._tokenizer)
        if figures.ratio.vocabulary is not vocabulary:
            figures = FigureEstimator(TokenRatio(self._model, vocabulary, self.calibration), self._served)
            self._figures = figures
        if self._samples and not self._is_waiting:
            self._learn_all(figures.ratio)
        return figures

    def _learn_all(self, ratio: TokenRatio) -> None:
        with suppress(IndexError):  # another thread may learn as well
            while True:
                learn(ratio, self._samples.popleft())

    def learnt(self) -> Calibration:
        """The calibration, with what reported answers can teach. Waits for the vocabulary if there are such answers."""
        if self._samples:
            vocabulary_of(self._served, self._tokenizer)
            self._current()
        return self.calibration

    def for_owner(self, owner: str) -> UsageEstimator:
        """The estimator for the runs of one owner of a server; this one itself for "".

        It begins with what is known here, and learns apart: nothing that one owner's runs teach reaches another's.
        """
        if not owner:
            return self
        own = self._by_owner.get(owner)
        if own is None:
            learnt = Calibration()
            learnt.add(self.calibration)
            own = UsageEstimator(
                self._model,
                tokenizer=self._tokenizer,
                price=self._price,
                calibration=learnt,
                is_deployment=self.is_deployment,
            )
            own = self._by_owner.setdefault(owner, own)
            for oldest in tuple(self._by_owner)[:-_MOST_OWNERS]:
                self._by_owner.pop(oldest, None)
        return own

    def recall(self, values: Mapping[str, bytes]) -> None:
        """Add the calibration that a session has saved for this model. One that cannot be read is ignored."""
        kept = values.get(self._kept_as)
        if kept is not None:
            with suppress(msgspec.MsgspecError, UnicodeError):
                self.calibration.add(Calibration.load(kept))

    def unsaved_calibration(self, conversation: object) -> tuple[str, bytes] | None:
        """The name and the calibration of this model, for the session to save; None when it has saved it already."""
        learnt, known = self.calibration.updates, self._known(conversation)
        if known.saved == learnt:
            return None
        known.saved = learnt
        return self._kept_as, self.calibration.dump(self._model)

    def preamble(self, instructions: str | None, tools: tuple[Any, ...], schema: dict[str, Any] | None) -> Preamble:
        """What goes before the messages of a request: that of the last one, where it is the same, and read already."""
        last = self._preamble
        if last is None or not last.is_of(instructions, tools, schema):
            last = self._preamble = Preamble(instructions, tools, schema)
        return last

    def answer_counter(self) -> AnswerCounter:
        """A counter for one answer, in the model's vocabulary."""
        return AnswerCounter(self._current().ratio.vocabulary)

    @property
    def counts_slowly(self) -> bool:
        """Whether an answer should be counted while it is streamed, because counting it later would delay the end."""
        return self._may_count and counts_slowly(self._served, self._tokenizer)

    def message_sizer(self, conversation: object) -> MessageSizer:
        """The sizer for the messages of a conversation; it reads each message once."""
        known, ratio = self._known(conversation), self._current().ratio
        sizer = known.sizer
        if sizer is None or sizer.ratio is not ratio:
            sizer = known.sizer = MessageSizer(ratio)
        return sizer

    def _known(self, conversation: object) -> KnownConversation:
        known = self._conversations.get(conversation)
        return self._conversations.setdefault(conversation, KnownConversation()) if known is None else known

    def input(self, conversation: object, sent: SentRequest) -> Figure:
        """The estimated input of a request."""
        return self._current().input(sent, self._known(conversation))

    def usage(self, conversation: object, sent: SentRequest, received: ReceivedAnswer) -> TokenUsage:
        """The figures of one call."""
        return self._current().usage(sent, received, self._known(conversation))

    def better_usage(
        self, conversation: object, sent: SentRequest, received: ReceivedAnswer, usage: TokenUsage
    ) -> Callable[[], TokenUsage] | None:
        """What counts one call once the vocabulary is loaded; None when `usage` cannot become better by that."""
        if not self._may_count or (usage.input.source in _STANDS and usage.output.source in _STANDS):
            return None
        if not self._is_waiting:
            return None
        anchor = self._known(conversation).anchor
        return lambda: self._current().usage(sent, received, KnownConversation(anchor))

    def record(self, conversation: object, sent: SentRequest, received: ReceivedAnswer) -> TokenUsage:
        """The figures of one call that has ended. What was reported improves the next estimates."""
        figures, known, report = self._current(), self._known(conversation), received.report
        usage = figures.usage(sent, received, known)
        if report is None:
            return usage
        sample = sample_of(sent, received, report, known.anchor)
        if sample is not None and figures.ratio.vocabulary is None and self._is_waiting:
            self._samples.append(structs.replace(sample, blocks=(), complete=False) if sample.is_long else sample)
        elif sample is not None:
            learn(figures.ratio, sample)
        if report.input and sent.messages and not report.server_tools:
            last = sent.messages[-1]
            known.anchor = Anchor(len(sent.messages), last, sent.preamble.fingerprint, report.input)
        return usage
