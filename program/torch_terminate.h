#pragma once

namespace torchps {

// Changes how the process ends if torch throws from a destructor, for example when freeing the
// memory of a failed GPU. It then ends with code 1 and a message on standard error, prefixed with
// `program`. By default it would end with SIGABRT, and a launcher would treat that as a crash and
// restart the program. Other failures are unchanged. Uses std::set_terminate. Call it once in main,
// before threads start.
void EndWellWhenTorchThrows(const char* program);

}  // namespace torchps
