// ps_worker: a worker for jobs that use torchps's built-in models and data.

#include "torchps/train.h"
#include "torchps/worker/models/model_registry.h"

int main(int argc, char** argv) {
  return torchps::TrainMain(
      argc, argv,
      [](const torchps::JobSpec& job) -> absl::StatusOr<torchps::Task> {
        absl::StatusOr<torchps::DataSource> data = torchps::OpenData(job);
        if (!data.ok()) return data.status();
        return torchps::MakeTask(job, *std::move(data));
      },
      torchps::CutModule);
}
