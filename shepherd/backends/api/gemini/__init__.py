"""Google's Gemini: the generateContent API."""
