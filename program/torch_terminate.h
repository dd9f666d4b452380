#pragma once

namespace torchps {

// From now on this process ends with code 1 and a sentence on standard error, by the name
// `program`, where torch throws from a destructor, which would end it by SIGABRT: so does memory of
// a GPU that has failed, where a stream was recorded for it. A launcher takes a signal for a crash,
// and starts the program again. Everything else ends it as before. To be called in main, once,
// before any thread; takes std::set_terminate.
void EndWellWhenTorchThrows(const char* program);

}  // namespace torchps
