"""How two requests become one; `MORE_` ones only in training, `HELD_` ones never there."""

READ_VERBS = (*("read", "show me", "open", "print", "show", "display", "cat", "the files"),)
MORE_READ_VERBS = (
    *("show me both", "look at", "have a look at", "I want to see", "give me", "let me see"),
    *("view", "check", "print out", "the contents of", "contents of", "the text of", "what is in"),
    *("pull up", "read both", "I need to see", "go through", "look into", "open up"),
    *("let me read", "type", "read me", "load", "fetch", "output", "bring up"),
    *("show me the text of", "inspect"),
)
DELETE_VERBS = (*("delete", "remove", "erase", "get rid of", "throw away", "rm"),)
MORE_DELETE_VERBS = (
    *("drop", "trash", "wipe", "bin", "discard", "destroy", "delete both", "do away with"),
    *("unlink", "I want to delete", "clear away", "scrap", "delete the files", "remove the files"),
    *("get rid of both", "erase both", "kill", "toss", "dispose of", "away with"),
)
READ_BACK = (
    "[read|show|print|display|open|view|check|cat] [it|the file|that file|the result]"
    "[| to me| back| again| for me]"
)
MORE_READ_BACK = (
    "[let me see|I want to see|have a look at|look at|verify|inspect] [it|the file|that file]",
    "[tell me|say|show me] [what it says|what is in it|its contents|what it contains][| now]",
    "[read|show|print|view] [its|the] [contents|content|text][| back| to me]",
    "[read|show|print|open] it [once more|so that I can check|so I can see it|to check|to be sure]",
    "[give|get] me [its contents|the text|the file|what is in it]",
    "[pull it up|bring it up|read what is in it now|load it again|type it out|double check it]",
)
RUN_IT = "[run|execute|start|launch|try] [it|the file|the script|that script|this]"
MORE_RUN_IT = (
    "[see|show me|tell me|check] [what it does|what it prints|its output|how it runs|if it works]",
    "[give it a try|try it out|test it|start it up|kick it off|run the thing|fire it up]",
    "[run|execute|start|launch|test] [that file|the program|the new script|the code]",
    "[run|execute|start] it [in the shell|in the terminal|once|right away|to see what it does]",
)
FIRST_ENTRY = (
    "[read|open|show me|print|display|cat|view|give me] the first [file|one|entry|of them|item]"
)
MORE_FIRST_ENTRY = (
    "[let me see|I want to see|have a look at|look at|check|load] the first [file|one|entry]",
    "[read|open|show me|print|view] [the one at the top|the top one|the 1st one]",
    "[read|open|show me|print|view] [number 1|number one|entry 1|file number one|the topmost one]",
    "[tell|show] me what [is in|stands in] the first [one|file|entry|of them]",
    "[show|give|read] me the [contents|content|text] of the first [one|file|entry|of these]",
    "[read|open|print] the first [of these|of those|file you find|file in it|name|result]",
)
THEN = (
    *(" and then ", " then ", ", then ", ", and then ", " and ", " and after that ", "; then "),
    *(". After that, ", ". Afterwards ", ". Next, ", ", next ", ". And then ", " and afterwards "),
    *("; after that, ", ". When that is done, ", ", once done, ", ", finally ", ". Also ", "\n"),
    *(", and ", " and also ", " and next ", ", followed by ", " - then ", ", when done "),
    *(". Now ", "; next ", " + ", ", then please ", ". After this ", " & ", ", also "),
    *(". Finally, ", ". ", ", and afterwards ", ". Then please ", " and when that is done "),
    *(" and if done ", "; finally ", ", second: ", " and second ", ", and when you are done "),
    *(" and right after that ", ". Second, ", ". In addition, ", ", in addition "),
    *(" and in the end ", ", plus ", " plus ", ". The next step: ", ". Besides, ", ", besides "),
    *(". Once done, ", ", as a next step ", " and at the end ", ". Last, ", ", last "),
    *(" and finally ", " and please ", ", and please ", ". And also ", ", and finally ", "\nand "),
    *("\nthen ", "\n- ", ". Ok, then ", ", only then "),
)
STARTS = (
    *("please ", "can you ", "could you ", "now ", "ok, ", "hey, ", "hi, ", "two things: "),
    *("would you ", "I need two things: ", "I want you to ", "go and ", "next, ", "pup, "),
    *("do this: ", "so, ", "two steps: ", "kindly ", "two tasks for you: ", "do both: "),
    *("next, please ", "I'd like you to "),
)
HELD_THEN = (*(", after that ", ". Then ", ", afterwards "),)
BOTH = (
    *(" and ", " and ", ", ", " & ", " and then ", " as well as ", " and also ", ", then "),
    *(" then ", " plus ", " + ", " and after that ", ", and ", ", also ", " and finally "),
    *(" and next ", " and ", ", ", " and after it ", ", and also ", " and later ", ", plus "),
    *(" along with ", ", and then ", "; ", " and the file ", ", as well as ", " and likewise "),
)
HELD_BOTH = (*(", after that ", ", afterwards ", " together with "),)
