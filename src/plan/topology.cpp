#include "overloaded.h"
#include "plan/label_text.h"
#include <weft/plan/topology.h>

#include <nlohmann/json.hpp>
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <tuple>

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

/// "1 fill", "2 fills".
std::string counted(std::uint64_t count, std::string_view singular, std::string_view plural) {
  return fmt::format("{} {}", count, count == 1 ? singular : plural);
}

std::string_view label_of(const Topology& topology, std::uint32_t allocation) {
  return allocation < topology.allocations.size() ? std::string_view(topology.allocations[allocation].label)
                                                  : std::string_view{};
}

std::string allocation_name(const Topology& topology, std::uint32_t allocation) {
  const std::string_view label = label_of(topology, allocation);
  return label.empty() ? fmt::format("#{}", allocation) : quoted_label(label);
}

/// Edges by (to, from), whatever order they came in.
std::vector<const TopologyEdge*> sorted_edges(const Topology& topology) {
  std::vector<const TopologyEdge*> edges;
  edges.reserve(topology.edges.size());
  for (const TopologyEdge& edge : topology.edges) edges.push_back(&edge);
  std::stable_sort(edges.begin(), edges.end(), [](const TopologyEdge* a, const TopologyEdge* b) {
    return std::tie(a->to, a->from) < std::tie(b->to, b->from);
  });
  return edges;
}

bool is_reused(const Topology& topology, std::uint32_t allocation) {
  return allocation < topology.allocations.size() && topology.allocations[allocation].kind == AllocationKind::reused;
}

std::string reason_text(const Topology& topology, const Reason& reason) {
  if (reason.allocation == kNoAllocation) return std::string(to_string(reason.kind));
  return fmt::format("{} {}{} {}..{}", to_string(reason.kind), is_reused(topology, reason.allocation) ? "reused " : "",
                     allocation_name(topology, reason.allocation), reason.begin, reason.end);
}

std::string joined_reasons(const Topology& topology, const TopologyEdge& edge, std::string_view separator) {
  std::string text;
  for (const Reason& reason : edge.reasons) {
    if (!text.empty()) text += separator;
    text += reason_text(topology, reason);
  }
  return text;
}

std::string late_text(const std::vector<LateParameter>& parameters) {
  std::string text;
  for (const LateParameter& late : parameters) {
    if (!text.empty()) text += ", ";
    text += fmt::format("{} {}", late.index, quoted_label(late.label));
  }
  return text;
}

std::string detail_text(const TopologyNode& node) {
  return std::visit(
      Overloaded{[](const FillDetail& fill) { return fmt::format("{} bytes value 0x{:02X}", fill.bytes, fill.value); },
                 [](const CopyDetail& copy) { return fmt::format("{} bytes", copy.bytes); },
                 [](const KernelDetail& kernel) {
                   std::string text = fmt::format("{} grid({}) block({})", escaped_label(kernel.symbol),
                                                  fmt::join(kernel.grid, ","), fmt::join(kernel.block, ","));
                   if (kernel.shared_bytes != 0) text += fmt::format(" shared({})", kernel.shared_bytes);
                   if (kernel.cluster != KernelDetail{}.cluster)
                     text += fmt::format(" cluster({})", fmt::join(kernel.cluster, ","));
                   if (kernel.cooperative) text += " cooperative";
                   if (!kernel.late.empty()) text += fmt::format(" late({})", late_text(kernel.late));
                   return text;
                 },
                 [](const CapturedDetail& captured) {
                   std::string text = fmt::format("call {}", quoted_label(captured.name));
                   if (captured.workspace_bytes != 0) text += fmt::format(" workspace({})", captured.workspace_bytes);
                   return text;
                 }},
      node.detail);
}

std::string node_text(const TopologyNode& node, std::size_t id) {
  std::string text = fmt::format("n{} {}", id, to_string(node.kind));
  if (node.role) text += fmt::format(" {}", to_string(*node.role));
  return text + fmt::format(" {} {}", quoted_label(node.label), detail_text(node));
}

std::string graph_text(const Topology& topology) {
  const std::size_t calls = topology.count(NodeKind::captured);
  std::string text = fmt::format("graph {}: {}, {}, {}{}, {}", quoted_label(topology.title),
                                 counted(topology.count(NodeKind::fill), "fill", "fills"),
                                 counted(topology.count(NodeKind::dispatch), "dispatch", "dispatches"),
                                 calls == 0 ? "" : counted(calls, "captured call, ", "captured calls, "),
                                 counted(topology.count(NodeKind::own), "own node", "own nodes"),
                                 counted(topology.edges.size(), "edge", "edges"));
  if (topology.redundant_edges != 0) text += fmt::format(" of which {} may be redundant", topology.redundant_edges);
  return text + fmt::format(", {}, {}, {} bytes requested, {} reserved", to_string(topology.order),
                            counted(topology.slots, "slot", "slots"), topology.requested_bytes,
                            topology.reserved_bytes);
}

Json reason_json(const Topology& topology, const Reason& reason) {
  Json json;
  json["kind"] = to_string(reason.kind);
  if (reason.allocation == kNoAllocation) return json;
  json["allocation"] = reason.allocation;
  json["label"] = label_of(topology, reason.allocation);
  json["begin"] = reason.begin;
  json["end"] = reason.end;
  if (is_reused(topology, reason.allocation)) json["reused"] = true;
  return json;
}

Json edge_json(const Topology& topology, const TopologyEdge& edge) {
  Json reasons = Json::array();
  for (const Reason& reason : edge.reasons) reasons.push_back(reason_json(topology, reason));
  Json json{{"from", edge.from}, {"to", edge.to}, {"reasons", std::move(reasons)}};
  if (edge.programmatic) json["programmatic"] = true;
  return json;
}

Json use_json(const Topology& topology, const ByteUse& use) {
  return {{"allocation", use.allocation},
          {"label", label_of(topology, use.allocation)},
          {"begin", use.begin},
          {"end", use.end},
          {"access", to_string(use.access)}};
}

Json node_json(const Topology& topology, std::size_t id) {
  const TopologyNode& node = topology.nodes[id];
  Json json{{"id", id}, {"kind", to_string(node.kind)}};
  if (node.role) json["role"] = to_string(*node.role);
  json["label"] = node.label;
  std::visit(Overloaded{[&](const FillDetail& fill) {
                          json["fill"] = {{"bytes", fill.bytes}, {"value", fill.value}};
                        },
                        [&](const CopyDetail& copy) { json["copy"]["bytes"] = copy.bytes; },
                        [&](const KernelDetail& kernel) {
                          json["kernel"] = {{"symbol", kernel.symbol},
                                            {"grid", kernel.grid},
                                            {"block", kernel.block},
                                            {"shared_bytes", kernel.shared_bytes}};
                          if (kernel.cluster != KernelDetail{}.cluster) json["kernel"]["cluster"] = kernel.cluster;
                          if (kernel.cooperative) json["kernel"]["cooperative"] = true;
                          for (const LateParameter& late : kernel.late)
                            json["kernel"]["late"].push_back({{"parameter", late.index}, {"label", late.label}});
                        },
                        [&](const CapturedDetail& captured) {
                          json["captured"] = {{"name", captured.name}, {"workspace_bytes", captured.workspace_bytes}};
                        }},
             node.detail);
  json["uses"] = Json::array();
  for (const ByteUse& use : node.uses) json["uses"].push_back(use_json(topology, use));
  return json;
}

Json allocation_json(const TopologyAllocation& allocation, std::size_t id) {
  Json json{{"id", id}, {"kind", to_string(allocation.kind)}, {"label", allocation.label}, {"bytes", allocation.bytes}};
  if (allocation.offset) json["offset"] = *allocation.offset;
  return json;
}

}  // namespace

std::string_view to_string(NodeKind kind) noexcept {
  switch (kind) {
    case NodeKind::fill:
      return "fill";
    case NodeKind::dispatch:
      return "dispatch";
    case NodeKind::captured:
      return "captured";
    case NodeKind::own:
      return "own";
  }
  return "unknown";
}

std::string_view to_string(OwnRole role) noexcept {
  switch (role) {
    case OwnRole::copy_in:
      return "copy-in";
    case OwnRole::copy_out:
      return "copy-out";
    case OwnRole::completion:
      return "completion";
    case OwnRole::fill_kernel:
      return "fill-kernel";
    case OwnRole::copy:
      return "copy";
  }
  return "unknown";
}

std::string_view to_string(AllocationKind kind) noexcept {
  switch (kind) {
    case AllocationKind::weight:
      return "weight";
    case AllocationKind::scratch:
      return "scratch";
    case AllocationKind::reused:
      return "reused";
    case AllocationKind::input:
      return "input";
    case AllocationKind::output:
      return "output";
    case AllocationKind::state:
      return "state";
    case AllocationKind::late:
      return "late";
    case AllocationKind::external:
      return "external";
    case AllocationKind::own:
      return "own";
  }
  return "unknown";
}

std::size_t Topology::count(NodeKind kind) const noexcept {
  return static_cast<std::size_t>(
      std::count_if(nodes.begin(), nodes.end(), [kind](const TopologyNode& node) { return node.kind == kind; }));
}

std::string to_text(const Topology& topology) {
  std::string text = graph_text(topology) + '\n';
  for (std::size_t id = 0; id < topology.allocations.size(); ++id) {
    const TopologyAllocation& allocation = topology.allocations[id];
    text += fmt::format("a{} {} {} {} bytes", id, to_string(allocation.kind), quoted_label(allocation.label),
                        allocation.bytes);
    if (allocation.offset) text += fmt::format(" at {}", *allocation.offset);
    text += '\n';
  }
  const std::vector<const TopologyEdge*> edges = sorted_edges(topology);
  auto edge = edges.begin();
  for (std::size_t id = 0; id < topology.nodes.size(); ++id) {
    text += node_text(topology.nodes[id], id);
    std::string_view separator = " <- ";
    for (; edge != edges.end() && (*edge)->to == id; ++edge) {
      text += fmt::format("{}{}n{}", separator, (*edge)->programmatic ? "~" : "", (*edge)->from);
      if (!(*edge)->reasons.empty()) text += fmt::format(" [{}]", joined_reasons(topology, **edge, "; "));
      separator = ", ";
    }
    text += '\n';
  }
  return text;
}

std::string to_dot(const Topology& topology) {
  std::string text = fmt::format("digraph \"{}\" {{\n  node [shape=box fontname=monospace];\n",
                                 dot_escaped(escaped_label(topology.title)));
  for (std::size_t id = 0; id < topology.nodes.size(); ++id) {
    const TopologyNode& node = topology.nodes[id];
    text += fmt::format("  n{} [label=\"{}\"{}];\n", id, dot_escaped(node_text(node, id)),
                        node.kind == NodeKind::own ? " style=dashed" : "");
  }
  for (const TopologyEdge* edge : sorted_edges(topology)) {
    text += fmt::format("  n{} -> n{} [label=\"{}\"{}];\n", edge->from, edge->to,
                        dot_escaped(joined_reasons(topology, *edge, "\n")), edge->programmatic ? " style=dashed" : "");
  }
  return text + "}\n";
}

std::string to_json(const Topology& topology) {
  Json json{{"title", topology.title}, {"order", to_string(topology.order)}, {"slots", topology.slots}};
  Json& counts = json["counts"];
  counts["fills"] = topology.count(NodeKind::fill);
  counts["dispatches"] = topology.count(NodeKind::dispatch);
  if (const std::size_t calls = topology.count(NodeKind::captured); calls != 0) counts["captured"] = calls;
  counts["own"] = topology.count(NodeKind::own);
  counts["edges"] = topology.edges.size();
  counts["redundant_edges"] = topology.redundant_edges;
  json["memory"] = {{"requested_bytes", topology.requested_bytes}, {"reserved_bytes", topology.reserved_bytes}};
  json["allocations"] = Json::array();
  for (std::size_t id = 0; id < topology.allocations.size(); ++id) {
    json["allocations"].push_back(allocation_json(topology.allocations[id], id));
  }
  json["nodes"] = Json::array();
  for (std::size_t id = 0; id < topology.nodes.size(); ++id) json["nodes"].push_back(node_json(topology, id));
  json["edges"] = Json::array();
  for (const TopologyEdge* edge : sorted_edges(topology)) json["edges"].push_back(edge_json(topology, *edge));
  // A label is the caller's and may hold any bytes: those that are not UTF-8 must not make this throw.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

}  // namespace weft
