#include "torchps/job/file/yaml_job.h"

#include <yaml.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "torchps/common/check.h"
#include "torchps/job/file/field_text.h"

namespace torchps {
namespace {

using ::google::protobuf::Descriptor;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::google::protobuf::OneofDescriptor;

// `line` counts from 0.
absl::Status ErrorInLine(absl::string_view source_name, size_t line, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(source_name, ":", line + 1, ": ", what));
}

absl::string_view MakeScalar(const yaml_node_t& node) {
  const auto& scalar = node.data.scalar;
  return {reinterpret_cast<const char*>(scalar.value), scalar.length};
}

// Returns true for an empty value or one of the words for null.
bool IsNull(const yaml_node_t& node) {
  if (node.type != YAML_SCALAR_NODE || node.data.scalar.style != YAML_PLAIN_SCALAR_STYLE) {
    return false;
  }
  const absl::string_view text = MakeScalar(node);
  return text.empty() || text == "~" || text == "null";
}

// Fills messages from the nodes of a YAML document. `path` is the job field that a node sets, such
// as training.epochs.
class YamlReader {
 public:
  YamlReader(absl::string_view source_name, yaml_document_t* document)
      : source_name_(source_name), document_(*document) {}

  absl::Status ReadMessage(const yaml_node_t& node, const std::string& path,
                           Message* message) const {
    if (IsNull(node)) return absl::OkStatus();
    if (node.type != YAML_MAPPING_NODE) {
      return ErrorAt(node, absl::StrCat(path.empty() ? "the job" : absl::StrCat("job field ", path),
                                        " is a message; expected its fields, each as name: value (",
                                        FieldNames(*message->GetDescriptor()), ")"));
    }
    std::set<std::string> seen;
    for (const auto& [key, value] : GetPairs(node)) {
      const std::string name(key->type == YAML_SCALAR_NODE ? MakeScalar(*key) : "");
      const std::string field_path = path.empty() ? name : absl::StrCat(path, ".", name);
      if (!seen.insert(name).second) {
        return ErrorAt(
            *key, absl::StrCat("job field ", field_path, " is given twice; leave out one of them"));
      }
      const absl::Status read = ReadMember(*key, name, *value, field_path, message);
      if (!read.ok()) return read;
    }
    return absl::OkStatus();
  }

 private:
  using Pair = std::pair<const yaml_node_t*, const yaml_node_t*>;

  // REQUIRES: the node is a mapping.
  std::vector<Pair> GetPairs(const yaml_node_t& node) const {
    std::vector<Pair> pairs;
    const auto& stored = node.data.mapping.pairs;
    for (const yaml_node_pair_t* pair = stored.start; pair != stored.top; ++pair) {
      pairs.emplace_back(GetNode(pair->key), GetNode(pair->value));
    }
    return pairs;
  }

  const yaml_node_t* GetNode(int id) const { return yaml_document_get_node(&document_, id); }

  // Reads member `name` of `message`: a field, or a oneof by its name.
  absl::Status ReadMember(const yaml_node_t& key, const std::string& name, const yaml_node_t& value,
                          const std::string& path, Message* message) const {
    const Descriptor& type = *message->GetDescriptor();
    const FieldDescriptor* field = type.FindFieldByName(name);
    if (field == nullptr) field = type.FindFieldByCamelcaseName(name);
    const OneofDescriptor* const oneof =
        field != nullptr ? field->real_containing_oneof() : type.FindOneofByName(name);
    // Protobuf creates a synthetic oneof for each optional field.
    if (field == nullptr && (oneof == nullptr || oneof->is_synthetic())) {
      return ErrorAt(key, absl::StrCat(type.name(), " has no field ", QuotedText(name), "; ",
                                       DescribeFields(type, name)));
    }
    const FieldDescriptor* const before = Chosen(*message, oneof);
    const absl::Status read = field != nullptr ? ReadField(value, path, message, *field)
                                               : ReadChoice(value, path, message, *oneof);
    if (!read.ok() || before == nullptr || before == Chosen(*message, oneof)) return read;
    return ErrorAt(key, absl::StrCat(type.name(), " has both ", before->name(), " and ",
                                     Chosen(*message, oneof)->name(), "; expected one of them"));
  }

  static const FieldDescriptor* Chosen(const Message& message, const OneofDescriptor* oneof) {
    return oneof == nullptr ? nullptr
                            : message.GetReflection()->GetOneofFieldDescriptor(message, oneof);
  }

  absl::Status ReadField(const yaml_node_t& value, const std::string& path, Message* message,
                         const FieldDescriptor& field) const {
    const bool has_names = field.message_type() == HyperparameterSpec::descriptor();
    if (value.type == YAML_MAPPING_NODE && has_names)
      return ReadNamedValues(value, path, message, field);
    if (!field.is_repeated() || value.type != YAML_SEQUENCE_NODE)
      return ReadValue(value, path, message, field);
    const auto& items = value.data.sequence.items;
    for (const yaml_node_item_t* item = items.start; item != items.top; ++item) {
      const std::string item_path = absl::StrCat(path, ".", item - items.start);
      const absl::Status read = ReadValue(*GetNode(*item), item_path, message, field);
      if (!read.ok()) return read;
    }
    return absl::OkStatus();
  }

  // Sets a singular field or appends to a list.
  absl::Status ReadValue(const yaml_node_t& value, const std::string& path, Message* message,
                         const FieldDescriptor& field) const {
    if (field.message_type() != nullptr) {
      const auto& reflection = *message->GetReflection();
      return ReadMessage(value, path,
                         field.is_repeated() ? reflection.AddMessage(message, &field)
                                             : reflection.MutableMessage(message, &field));
    }
    const absl::Status single = CheckSingle(value, path);
    return single.ok() ? At(value, PutScalar(message, &field, {path, MakeScalar(value)})) : single;
  }

  // Reads a mapping as a list of messages with a name and a value.
  absl::Status ReadNamedValues(const yaml_node_t& values, const std::string& path, Message* message,
                               const FieldDescriptor& field) const {
    const Descriptor& type = *field.message_type();
    for (const auto& [key_node, value_node] : GetPairs(values)) {
      const yaml_node_t& key = *key_node;
      const yaml_node_t& value = *value_node;
      Message* const pair = message->GetReflection()->AddMessage(message, &field);
      absl::Status put = CheckSingle(key, path);
      if (put.ok()) put = At(key, PutScalar(pair, type.field(0), {path, MakeScalar(key)}));
      const std::string entry_path = absl::StrCat(path, ".", MakeScalar(key));
      if (put.ok()) put = CheckSingle(value, entry_path);
      if (put.ok())
        put = At(value, PutScalar(pair, type.field(1), {entry_path, MakeScalar(value)}));
      if (!put.ok()) return put;
    }
    return absl::OkStatus();
  }

  absl::Status ReadChoice(const yaml_node_t& value, const std::string& path, Message* message,
                          const OneofDescriptor& oneof) const {
    const absl::Status single = CheckSingle(value, path);
    return single.ok() ? At(value, ChooseMember(message, oneof, {path, MakeScalar(value)}))
                       : single;
  }

  absl::Status CheckSingle(const yaml_node_t& value, const std::string& path) const {
    if (value.type == YAML_SCALAR_NODE && !IsNull(value)) return absl::OkStatus();
    return ErrorAt(value, absl::StrCat("job field ", path, " is ",
                                       value.type == YAML_SEQUENCE_NODE  ? "a list"
                                       : value.type == YAML_MAPPING_NODE ? "a map"
                                                                         : "empty",
                                       "; expected one value"));
  }

  // Adds the node's line to the message of `status`.
  absl::Status At(const yaml_node_t& node, const absl::Status& status) const {
    return status.ok() ? status : ErrorAt(node, status.message());
  }

  absl::Status ErrorAt(const yaml_node_t& node, absl::string_view what) const {
    return ErrorInLine(source_name_, node.start_mark.line, what);
  }

  const absl::string_view source_name_;
  yaml_document_t& document_;
};

// Returns the status for an error of libyaml's parser.
absl::Status NotYaml(absl::string_view source_name, const yaml_parser_t& parser) {
  if (parser.error == YAML_READER_ERROR) {
    return absl::InvalidArgumentError(
        absl::StrCat(source_name, ": not valid UTF-8 at byte ", parser.problem_offset));
  }
  if (parser.problem == nullptr)
    return absl::ResourceExhaustedError("out of memory while reading a job file");
  std::string what = parser.problem;
  if (parser.context != nullptr) {
    absl::StrAppend(&what, " ", parser.context, ", which starts in line ",
                    parser.context_mark.line + 1);
  }
  return ErrorInLine(source_name, parser.problem_mark.line, what);
}

}  // namespace

absl::StatusOr<JobSpec> ParseYamlJob(absl::string_view text, absl::string_view source_name) {
  yaml_parser_t parser;
  TPS_CHECK(yaml_parser_initialize(&parser) != 0, "no memory for a parser");
  const auto delete_parser = absl::MakeCleanup([&parser] { yaml_parser_delete(&parser); });
  yaml_parser_set_input_string(&parser, reinterpret_cast<const unsigned char*>(text.data()),
                               text.size());
  JobSpec job;
  for (int documents = 0;; ++documents) {
    yaml_document_t document;
    if (yaml_parser_load(&parser, &document) == 0) return NotYaml(source_name, parser);
    const auto delete_document =
        absl::MakeCleanup([&document] { yaml_document_delete(&document); });
    const yaml_node_t* const root = yaml_document_get_root_node(&document);
    if (root == nullptr) return job;  // the end of the text
    if (documents > 0) {
      return ErrorInLine(source_name, root->start_mark.line,
                         "a second document begins here; expected one job");
    }
    const absl::Status read =
        YamlReader(source_name, &document).ReadMessage(*root, /*path=*/"", &job);
    if (!read.ok()) return read;
  }
}

}  // namespace torchps
