#pragma once

namespace torchps {

// From now on this process says in a sentence on standard error when the system refuses it memory,
// before it ends: by SIGABRT, so that a launcher starts it again. `program` is its name, and `what`
// goes behind that: what of its work stays, and what to do. gRPC ends a process in the same way
// where it gets no memory, without a word. To be called in main, once, before any thread; takes the
// handler of SIGABRT and std::set_new_handler.
void SayWhenOutOfMemory(const char* program, const char* what);

}  // namespace torchps
