"""Providers that speak one of OpenAI's two languages: chat completions, or responses.

chat_*     chat completions, which nearly every server has; `dialects` says how they differ
responses  the only language of some of OpenAI's models (`dialects.needs_responses`)
"""
