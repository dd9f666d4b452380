#include "torchps/worker/replicas/replica_threads.h"

namespace torchps {

ReplicaThreads::ReplicaThreads(size_t members) {
  for (size_t member = 1; member < members; ++member) {
    threads_.emplace_back([this, member] { Serve(member); });
  }
}

ReplicaThreads::~ReplicaThreads() {
  {
    const MutexLock lock(&mutex_);
    ended_ = true;
    changed_.SignalAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

void ReplicaThreads::Run(const Work& work) {
  {
    const MutexLock lock(&mutex_);
    work_ = &work;
    busy_ = threads_.size();
    ++runs_;
    changed_.SignalAll();
  }
  work(0);
  const MutexLock lock(&mutex_);
  while (busy_ > 0) changed_.Wait(&mutex_);
}

void ReplicaThreads::Serve(size_t member) {
  for (uint64_t run = 1;; ++run) {
    const Work* work = nullptr;
    {
      const MutexLock lock(&mutex_);
      while (!ended_ && runs_ < run) changed_.Wait(&mutex_);
      if (ended_) return;
      work = work_;
    }
    (*work)(member);
    const MutexLock lock(&mutex_);
    if (--busy_ == 0) changed_.SignalAll();
  }
}

}  // namespace torchps
