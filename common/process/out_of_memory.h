#pragma once

namespace torchps {

// From now on this process says in a sentence on standard error when the system refuses it memory,
// before it ends by SIGABRT, so that a launcher starts it again. `program` is its name, and `what`
// goes behind that: what of its work stays, and what to do. gRPC ends a process, too, where it gets
// no memory, without a word: by SIGABRT, and by SIGSEGV where it does not look at what malloc()
// gave. To be called in main, once, before any thread; takes the handlers of both signals and
// std::set_new_handler.
void SayWhenOutOfMemory(const char* program, const char* what);

}  // namespace torchps
