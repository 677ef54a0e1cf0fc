"""What the engines that run in this process share: prompts, answers, the thread for texts."""
