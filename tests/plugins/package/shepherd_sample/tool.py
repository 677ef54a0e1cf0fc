"""A tool from a function."""

import shepherd


@shepherd.tool
def weather(city: str) -> str:
    """Tell the weather in a city.

    Args:
        city: The name of the city.
    """
    return f"It rains in {city}."
