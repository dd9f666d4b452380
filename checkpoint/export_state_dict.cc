#include "checkpoint/export_state_dict.h"

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "checkpoint/stored_zip.h"

namespace torchps {
namespace {

// Writes the subset of pickle protocol 2 that a dictionary of tensors needs; see Python's
// pickletools.py. Uses only constructors that torch.load(weights_only=True) allows.
class Pickle {
 public:
  Pickle() : bytes_("\x80\x02", 2) {}

  void Mark() { bytes_ += '('; }
  void Global(absl::string_view module, absl::string_view name) {
    absl::StrAppend(&bytes_, "c", module, "\n", name, "\n");
  }
  void String(absl::string_view text) {
    bytes_ += 'X';
    Put(text.size(), 4);
    absl::StrAppend(&bytes_, text);
  }
  void Integer(int64_t number) {
    if (number >= 0 && number <= std::numeric_limits<int32_t>::max()) {
      bytes_ += 'J';
      Put(static_cast<uint64_t>(number), 4);
    } else {
      bytes_ += '\x8a';
      bytes_ += '\x08';
      Put(static_cast<uint64_t>(number), 8);
    }
  }
  void False() { bytes_ += '\x89'; }
  void EmptyTuple() { bytes_ += ')'; }
  void Tuple() { bytes_ += 't'; }           // pops to the mark
  void Call() { bytes_ += 'R'; }            // calls a callable with the tuple on top
  void LoadPersistent() { bytes_ += 'Q'; }  // loads the storage that the tuple identifies
  void SetItems() { bytes_ += 'u'; }        // stores in the dictionary below the mark
  std::string Finish() { return bytes_ + '.'; }

 private:
  void Put(uint64_t number, int bytes) {
    for (int i = 0; i < bytes; ++i) bytes_ += static_cast<char>(number >> (8 * i));
  }

  std::string bytes_;
};

void PutOrderedDict(Pickle* pickle) {
  pickle->Global("collections", "OrderedDict");
  pickle->EmptyTuple();
  pickle->Call();
}

void PutTuple(const std::vector<int64_t>& numbers, Pickle* pickle) {
  pickle->Mark();
  for (const int64_t number : numbers) pickle->Integer(number);
  pickle->Tuple();
}

std::vector<int64_t> ContiguousStrides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= shape[i] > 0 ? shape[i] : 1;
  }
  return strides;
}

absl::string_view GetStorage(Dtype dtype) {
  switch (dtype) {
    case Dtype::kBOOL:
      return "BoolStorage";
    case Dtype::kU8:
      return "ByteStorage";
    case Dtype::kI8:
      return "CharStorage";
    case Dtype::kI16:
      return "ShortStorage";
    case Dtype::kI32:
      return "IntStorage";
    case Dtype::kI64:
      return "LongStorage";
    case Dtype::kF16:
      return "HalfStorage";
    case Dtype::kBF16:
      return "BFloat16Storage";
    case Dtype::kF32:
      return "FloatStorage";
    case Dtype::kF64:
      return "DoubleStorage";
    case Dtype::kC64:
      return "ComplexFloatStorage";
    case Dtype::kC128:
      return "ComplexDoubleStorage";
    case Dtype::kOther:  // never in ExportedModel
      break;
  }
  return "";
}

// Writes a tensor that covers the whole storage data/`key`.
void PutTensor(const ExportedModel::Tensor& tensor, absl::string_view key, Pickle* pickle) {
  pickle->Global("torch._utils", "_rebuild_tensor_v2");
  pickle->Mark();
  pickle->Mark();
  pickle->String("storage");
  pickle->Global("torch", GetStorage(tensor.dtype));
  pickle->String(key);
  pickle->String("cpu");
  pickle->Integer(tensor.bytes / DtypeBytes(tensor.dtype));
  pickle->Tuple();
  pickle->LoadPersistent();
  pickle->Integer(0);
  PutTuple(tensor.shape, pickle);
  PutTuple(ContiguousStrides(tensor.shape), pickle);
  pickle->False();         // requires_grad
  PutOrderedDict(pickle);  // backward hooks
  pickle->Tuple();
  pickle->Call();
}

}  // namespace

absl::Status ExportStateDict(FileSystem* files, const std::string& path,
                             const ExportedModel& model) {
  const std::vector<ExportedModel::Tensor>& tensors = model.tensors();
  Pickle pickle;
  PutOrderedDict(&pickle);
  pickle.Mark();
  for (size_t i = 0; i < tensors.size(); ++i) {
    pickle.String(tensors[i].name);
    PutTensor(tensors[i], absl::StrCat(i), &pickle);
  }
  pickle.SetItems();

  auto zip = StoredZip::Create(files, path);
  if (!zip.ok()) return zip.status();
  absl::Status status = (*zip)->AddEntry("archive/data.pkl", pickle.Finish());
  if (status.ok()) status = (*zip)->AddEntry("archive/byteorder", "little");
  for (size_t i = 0; i < tensors.size() && status.ok(); ++i) {
    status = (*zip)->BeginEntry(absl::StrCat("archive/data/", i),
                                static_cast<uint64_t>(tensors[i].bytes));
    if (!status.ok()) break;
    status = model.Read(i, [&](absl::string_view bytes) { return (*zip)->Append(bytes); });
  }
  if (status.ok()) status = (*zip)->AddEntry("archive/version", "3\n");
  if (!status.ok()) return status;
  return (*zip)->Finish();
}

}  // namespace torchps
