"""The network policies in deploy/ are well-formed, and none of their rules lets out more than it says."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

EGRESS = Path(__file__).resolve().parents[2] / "deploy" / "egress"


def policies() -> dict[str, dict[str, Any]]:
    documents = yaml.safe_load_all((EGRESS / "networkpolicy.yaml").read_text())
    return {document["metadata"]["name"]: document for document in documents}


def test_agents_pods_are_let_out_to_forks_and_collector_by_label_and_port_only() -> None:
    agent = policies()["redteam-agent"]
    assert agent["apiVersion"] == "networking.k8s.io/v1"
    assert agent["kind"] == "NetworkPolicy"
    assert agent["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert agent["spec"]["podSelector"]["matchLabels"] == {"redteam/role": "agent"}
    let_out = {}
    for rule in agent["spec"]["egress"]:
        assert set(rule) == {"to", "ports"}  # a rule that lacks either is open to all
        [peer], [port] = rule["to"], rule["ports"]
        let_out[peer["podSelector"]["matchLabels"]["redteam/role"]] = (port["protocol"], port["port"])
    assert let_out == {"forks": ("TCP", 5432), "harness": ("TCP", 8443)}


def test_forks_server_starts_no_connection() -> None:
    forks = policies()["redteam-forks"]["spec"]
    assert "Egress" in forks["policyTypes"]
    assert forks["egress"] == []


def test_containers_of_agent_and_forks_are_on_a_network_without_a_way_out() -> None:
    compose = yaml.safe_load((EGRESS / "compose.yaml").read_text())
    assert compose["networks"]["inside"]["internal"] is True
    for name in ("agent", "forks"):
        assert list(compose["services"][name]["networks"]) == ["inside"]
    address = compose["services"]["forks"]["networks"]["inside"]["ipv4_address"]
    assert compose["services"]["agent"]["extra_hosts"] == [f"forks:{address}"]


def test_packet_filter_is_accepted_by_nft() -> None:
    nft = shutil.which("nft")
    if nft is None:
        pytest.skip("nft is not installed: the filter's syntax is not checked here")
    rules = (EGRESS / "agent.nft").read_text().replace('"redteam-agent"', "12345")  # that user is not here
    done = subprocess.run([nft, "-c", "-f", "-"], input=rules, capture_output=True, text=True, check=False)
    if "Operation not permitted" in done.stderr:
        pytest.skip("nft may not look at this kernel's tables: the filter's syntax is not checked here")
    assert done.returncode == 0, done.stderr
