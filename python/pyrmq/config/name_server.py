"""Options of the name server (Apache `NamesrvConfig` and `NettyServerConfig`)."""

from __future__ import annotations

from typing import ClassVar

from pyrmq.config.option import LONG_MAX, PORT_MAX, option
from pyrmq.config.protection import ProtectionOptions

NAME_SERVER_PORT = 9876
NAME_SERVER_STATUS = 30_001
"""Request code of `pyrmq nameserver status`; Apache uses none near it."""


class NameServerOptions(ProtectionOptions):
    """Options of the name server (Apache `NamesrvConfig` and `NettyServerConfig`).

    Example:
        >>> from pyrmq.config import NameServerOptions
        >>> NameServerOptions(listen_port=0).listen_port
        0
    """

    role: ClassVar[str] = "name server"

    listen_port: int = option(
        default=NAME_SERVER_PORT, text="port to listen on; 0: a free one", maximum=PORT_MAX
    )
    bind_address: str = option(default="0.0.0.0", text="address to listen on")  # noqa: S104 - Apache's default
    address_set_listeners: str = option(
        default="",
        text="further ports, each for the clients of one of the brokers' address sets: "
        "`outside=0.0.0.0:9877`, several separated by `;` (pyrmq only)",
    )
    server_channel_max_idle_time_seconds: int = option(
        default=120,
        text="time without traffic after which a connection is closed",
        unit="s",
        minimum=1,
        maximum=86_400,
    )
    kv_config_path: str | None = option(
        default=None,
        text="file of the key-value configuration; default: ~/namesrv/kvConfig.json",
    )
    config_store_path: str | None = option(
        default=None,
        text="file that changed options are written to; default: none",
    )
    config_black_list: str = option(
        default="configBlackList;configStorePath;kvConfigPath",
        text="options that request code 318 may not change, separated by `;`",
    )
    default_thread_pool_queue_capacity: int = option(
        default=10_000,
        text="requests for Python handlers that may wait at once",
        unit="requests",
        minimum=1,
        maximum=LONG_MAX,
    )
    authentication_enabled: bool = option(
        default=False,
        text="whether every request must be signed by a user of `authConfigPath`",
    )
    authorization_enabled: bool = option(
        default=False,
        text="whether policies decide which requests a user may send; needs authenticationEnabled",
    )
    auth_config_path: str | None = option(
        default=None,
        text="file of the users and policies (JSON, mode 0600); read again when it changes",
    )
    inner_client_credentials_path: str | None = option(
        default=None,
        text="file with the user that signs this server's own requests (pyrmq only)",
    )
    order_message_enable: bool = option(
        default=False, text="whether routes carry the order configuration of their topic", live=True
    )
    return_order_topic_config_to_broker: bool = option(
        default=True,
        text="whether a registering broker gets the order configuration of all topics",
        live=True,
    )
    enable_all_topic_list: bool = option(
        default=True, text="whether the list of all topics is served (206)", live=True
    )
    enable_topic_list: bool = option(
        default=True,
        text="whether the other lists of topics are served (224, 311 to 313)",
        live=True,
    )
    scan_not_active_broker_interval: int = option(
        default=5000,
        text="time between two checks for silent brokers",
        unit="ms",
        minimum=1,
        maximum=LONG_MAX,
    )
    support_acting_master: bool = option(
        default=False, text="whether a slave stands in for a missing master", live=True
    )
    notify_min_broker_id_changed: bool = option(
        default=False,
        text="whether brokers are notified when the lowest id of their name changes (905)",
        live=True,
    )
    delete_topic_with_broker_registration: bool = option(
        default=False,
        text="whether topics missing from a broker's registration are removed from it",
        live=True,
    )
    max_topics_per_broker: int = option(
        default=200_000,
        text="maximum topics of one broker name; a registration with more is refused",
        unit="topics",
        minimum=1,
        maximum=LONG_MAX,
        live=True,
    )
    max_topics: int = option(
        default=4_000_000,
        text="maximum topics of all broker names, a topic counting once per name that has it; "
        "a registration beyond that is refused",
        unit="topics",
        minimum=1,
        maximum=LONG_MAX,
        live=True,
    )
    max_brokers: int = option(
        default=10_000,
        text="maximum number of broker names; registrations of further names are refused",
        unit="names",
        minimum=1,
        maximum=LONG_MAX,
        live=True,
    )
    need_wait_for_service: bool = option(
        default=False,
        text="whether route queries are refused for a while after the start",
        live=True,
    )
    wait_seconds_for_service: int = option(
        default=45,
        text="how long route queries are refused after the start",
        unit="s",
        maximum=LONG_MAX,
        live=True,
    )
    metrics_port: int = option(
        default=0,
        text="port of /metrics (Prometheus), /live and /ready; 0 for none",
        maximum=PORT_MAX,
    )
