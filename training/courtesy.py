"""Polite words before and after a request; the `HELD_` ones never occur in training."""

OPENERS = (
    *("please ", "can you ", "could you ", "now ", "would you ", "I want you to ", "ok, "),
    *("hey, ", "then ", "pup, ", "you should ", "I need you to ", "go and ", "hi! ", "next, "),
    *("kindly ", "will you ", "can you please ", "could you please ", "so, ", "alright, ", "hm, "),
    *("do me a favour and ", "try to ", "I want to ", "help me to ", "hey you, ", "hello, "),
    *("would you be so nice to ", "right, ", "pup ", "first ", "I'd like to ", "please, "),
    *("just ", "let's ", "go ahead and ", "feel free to ", "make sure to ", "time to ", "pls "),
    *("plz ", "can you quickly ", "could you quickly ", "can you just ", "could you just "),
    *("you can ", "yo, ", "you could ", "you may ", "you must ", "we need to ", "we should "),
    *("I have to ", "I must ", "ok pup, ", "ok now ", "and now ", "after that "),
    *("one more thing: ", "hi pup, ", "hello pup, ", "if you don't mind, "),
    *("when you get a chance, ", "are you able to ", "your next task: "),
    *("I was hoping you could ", "it would be great if you could ", "I'd be glad if you could "),
    *("I want to ask you to ", "is it possible to ", "I'd love you to ", "good morning, "),
    *("dear pup, ", "be a dear and ", "how about you ", "once again, ", "this time "),
    *("actually, ", "instead, ", "for now, ", "quickly ", "simply ", "also, ", "sorry, "),
    *("thanks, now ", "great, now ", "task: ", "I'd ask you to ", "do you mind to "),
    *("would it be possible to ", "I think you should "),
)
HELD_OPENERS = (
    *("be so kind to ", "would you please ", "well, ", "I would like you to ", "hey pup, "),
)
ASKERS = (
    *("please tell me: ", "ok, ", "hey, ", "and ", "so ", "pup, ", "now ", "hi, ", "question: "),
    *("quick question: ", "just curious: ", "ok so ", "hello, ", "hi pup, ", "yo, ", "but "),
    *("um, ", "I have a question: ", "one question: ", "say, ", "please, ", "sorry, "),
    *("alright, ", "then ", "another question: ", "by the way, ", "I wonder: ", "can you say: "),
    *("hello pup, ", "next: "),
)
HELD_ASKERS = (*("tell me, ", "well, ", "hey pup, "),)
CLOSERS = (
    *(" please", " for me", " now", ", please", " thanks", ", thanks", " thanks a lot"),
    *(", cheers", ", thanks a lot", ", many thanks", ", thx", ", can you", ", will you"),
    *(", could you", " pls", " at once", " right away", ", quickly", " immediately"),
    *(", if you can", ", if possible", ", thanks so much", ", much obliged"),
    *(", that would be nice", ", now", ", pup", " straight away", " this instant"),
    *(" right this minute", ", right away please", " asap", ", asap", " when you can"),
    *(" as soon as possible", ", ok", ", okay", ", right", ", ty", ", if you don't mind"),
    *(", that's all", ", nothing else", ", please do", ", it's urgent", " next", ", if you would"),
    *(", won't you", " when you have time", ", be quick", ", dear", ", my friend", " today"),
    *(", for me", ", kindly", " this very moment", " this second", " already", ", plz"),
    *(" for me please", " now please", ", I beg you", " if possible", " if you can"),
    *(", thanks pup", ", thanks in advance", " quickly", " as quickly as you can", ", good dog"),
    *(", then", ", mate"),
)
HELD_CLOSERS = (*(", would you", " right now", ", thank you"),)
