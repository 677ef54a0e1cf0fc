"""Every backend there is, and which of them can be tried with what."""

from tests.backends.conformance.scenario import Scenario
from tests.backends.conformance.subject import Subject
from tests.backends.conformance.subjects.anthropic import AnthropicSubject
from tests.backends.conformance.subjects.gemini import GeminiSubject
from tests.backends.conformance.subjects.llamacpp import LlamaCppSubject
from tests.backends.conformance.subjects.ollama import OllamaSubject
from tests.backends.conformance.subjects.openai_chat import ChatSubject
from tests.backends.conformance.subjects.openai_responses import ResponsesSubject
from tests.backends.conformance.subjects.refusing import StrictSubject, ToollessSubject
from tests.backends.conformance.subjects.scripted import ScriptedSubject
from tests.backends.conformance.subjects.shepherd import ShepherdSubject
from tests.backends.conformance.subjects.tensorrt import TensorRTSubject
from tests.backends.conformance.subjects.tensorrt_inprocess import TensorRTInProcessSubject
from tests.backends.conformance.wired import AdapterSubject

WIRED: list[AdapterSubject] = [
    ChatSubject(),
    ResponsesSubject(),
    AnthropicSubject(),
    GeminiSubject(),
    OllamaSubject(),
    TensorRTSubject(),
    ShepherdSubject(),
]
SUBJECTS: list[Subject] = [
    *WIRED,
    ToollessSubject(),
    StrictSubject(),
    ScriptedSubject(),
    LlamaCppSubject(),
    TensorRTInProcessSubject(),
]

ELSEWHERE = {
    "FailoverBackend": "hands requests on to the others; see tests/backends/test_providers.py",
    "LlamaEmbeddingBackend": "makes no answers; see tests/backends/llamacpp/test_embedding.py",
    "UnloadedBackend": "stands for a model without memory; see tests/server/pool",
}
"""Backends that are no subjects, and why."""


def every(scenario: Scenario) -> list[Subject]:
    """The subjects to which it can happen."""
    return [subject for subject in SUBJECTS if scenario not in subject.lacks]


def wired(scenario: Scenario) -> list[AdapterSubject]:
    """Those of them that are behind HTTP."""
    return [subject for subject in WIRED if scenario not in subject.lacks]
