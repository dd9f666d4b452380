#pragma once

namespace torchps {

// Makes this process print a line to standard error when memory allocation fails, before it ends
// with SIGABRT; a launcher then restarts it. The line starts with `program`, the program name, and
// ends with `what`, which explains what work survives and what to do.
//
// gRPC ends the process silently when an allocation fails: by SIGABRT, or by SIGSEGV after an
// unchecked malloc(). This function therefore installs handlers for both signals and for
// std::set_new_handler. Call once from main before starting threads.
void SayWhenOutOfMemory(const char* program, const char* what);

}  // namespace torchps
