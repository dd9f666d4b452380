// shared_memory_pusher SERVER SLOT: pushes from shared memory until it is killed. Prints "pushing"
// after the first push.

#include <cstdio>
#include <cstdlib>

#include "tests/fault/shared_memory_job.h"
#include "tests/testing/plain_worker.h"
#include "tests/testing/shared_worker.h"
#include "torchps/transport/grpc_process.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  torchps::PrepareGrpcProcess();
  torchps::SharedWorker worker(torchps::PlainChannel(argv[1]),
                               torchps::SharedMemoryJobHello(std::atoi(argv[2])));
  if (!worker.Hello().ok() || !worker.shares()) return 1;
  for (torchps::Step step = 1; worker.Push(step).ok(); ++step) {
    if (step > 1) continue;
    std::puts("pushing");
    std::fflush(stdout);
  }
  return 1;
}
