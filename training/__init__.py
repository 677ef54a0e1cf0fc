"""Training of Pup, Shepherd's built-in model: data, tokenizer, training, export, evaluation."""
