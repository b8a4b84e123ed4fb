"""The usage estimator of one model: its calibration, its price, and the last reported input of each conversation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final
from weakref import WeakKeyDictionary

import msgspec

from ..figure import Figure
from ..ledger import TokenUsage
from ..price_list import load_prices
from ..prices import Price
from .answer_count import AnswerCounter
from .calibration import Calibration
from .figures import Anchor, FigureEstimator, MeasuredMessages, ReceivedAnswer, SentRequest
from .learning import learn
from .message_size import MessageSizer
from .ratio import TokenRatio
from .vocabulary import Vocabulary, counts_slowly, load_vocabulary, vocabulary_of

# Estimators of owners that are kept. One that is dropped begins again with what its agent was given.
_MOST_OWNERS: Final = 1000


class _ServedModel:
    """The model that answers, which is another one than was asked for where that is a deployment."""

    def __init__(self, name: str, tokenizer: str | None) -> None:
        self.name = name
        self._tokenizer: Final = tokenizer

    def vocabulary(self) -> Vocabulary | None:
        """The vocabulary in which its tokens are counted."""
        return vocabulary_of(self.name, self._tokenizer)


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
        self._is_deployment: Final = is_deployment
        self._served: Final = _ServedModel(model, tokenizer)
        self.calibration: Final = calibration or Calibration()
        self._price: Final = price
        self._tokenizer: Final = tokenizer
        self._by_owner: Final[dict[str, UsageEstimator]] = {}
        self._ratio: Final = TokenRatio(model, self._served.vocabulary, self.calibration)
        self._figures: Final = FigureEstimator(self._ratio, lambda served=self._served: served.name)
        self._anchors: Final[WeakKeyDictionary[object, Anchor]] = WeakKeyDictionary()
        self._measured: Final[WeakKeyDictionary[object, MeasuredMessages]] = WeakKeyDictionary()
        self._kept: Final[WeakKeyDictionary[object, int]] = WeakKeyDictionary()
        self._kept_as: Final = f"calibration.{model}"
        self._message_sizers: Final[WeakKeyDictionary[object, MessageSizer]] = WeakKeyDictionary()

    @property
    def price(self) -> Price | None:
        """What the tokens of the model cost."""
        return self._price(self._served.name) if callable(self._price) else self._price

    def served_by(self, model: str | None) -> None:
        """An answer names the model that it comes from: for a deployment, whose own name says nothing about that."""
        if self._is_deployment and model:
            provider = self._ratio.model.partition(":")[0]
            if self._served.name != f"{provider}:{model}":
                self._served.name = f"{provider}:{model}"
                self._ratio.forget_vocabulary()

    def prepare(self) -> None:
        """Begin to load, in a thread, what is needed to count: a stop or the end of an answer need not wait then."""
        load_vocabulary(self._served.name, self._tokenizer)
        if callable(self._price):
            load_prices(self._served.name)

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
                self._ratio.model,
                tokenizer=self._tokenizer,
                price=self._price,
                calibration=learnt,
                is_deployment=self._is_deployment,
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
        learnt = self.calibration.updates
        if self._kept.get(conversation, 0) == learnt:
            return None
        self._kept[conversation] = learnt
        return self._kept_as, self.calibration.dump(self._ratio.model)

    def answer_counter(self) -> AnswerCounter:
        """A counter for one answer, in the model's vocabulary."""
        return AnswerCounter(self._ratio.vocabulary)

    @property
    def counts_slowly(self) -> bool:
        """Whether an answer should be counted while it is streamed, because counting it later would delay the end."""
        return counts_slowly(self._served.name, self._tokenizer)

    def message_sizer(self, conversation: object) -> MessageSizer:
        """The sizer for the messages of a conversation; it reads each message once."""
        message_sizer = self._message_sizers.get(conversation)
        if message_sizer is None:
            message_sizer = self._message_sizers[conversation] = MessageSizer(self._ratio)
        return message_sizer

    def _measured_of(self, conversation: object) -> MeasuredMessages:
        measured = self._measured.get(conversation)
        if measured is None:
            measured = self._measured[conversation] = MeasuredMessages()
        return measured

    def input(self, conversation: object, sent: SentRequest) -> Figure:
        """The estimated input of a request."""
        return self._figures.input(sent, self._anchors.get(conversation), self._measured_of(conversation))

    def usage(self, conversation: object, sent: SentRequest, received: ReceivedAnswer) -> TokenUsage:
        """The figures of one call."""
        return self._figures.usage(sent, received, self._anchors.get(conversation), self._measured_of(conversation))

    def record(self, conversation: object, sent: SentRequest, received: ReceivedAnswer) -> TokenUsage:
        """The figures of one call that has ended. What was reported improves the next estimates."""
        anchor = self._anchors.get(conversation)
        usage = self._figures.usage(sent, received, anchor, self._measured_of(conversation))
        report = received.report
        if report is not None:
            learn(self._ratio, sent, received, anchor)
        if report is not None and report.input and sent.messages and not report.server_tools:
            last = sent.messages[-1]
            self._anchors[conversation] = Anchor(len(sent.messages), last, sent.preamble.fingerprint, report.input)
        return usage
