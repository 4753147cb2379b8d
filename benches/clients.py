"""Clients that send one request at a time on a kept connection, always the same one: the load of benches/budget."""

import socket
import ssl
import sys

try:
    import h2.config
    import h2.connection
    import h2.events
except ImportError:
    sys.exit("h2 is missing: apt-get install python3-h2")


def receive(connection):
    """Bytes of a response."""
    received = connection.recv(65536)
    if not received:
        sys.exit("the gateway closed the connection")
    return received


class Http1:
    """A connection of HTTP/1.1 with one request at a time."""

    def __init__(self, connection, path):
        self.connection = connection
        self.message = f"GET {path} HTTP/1.1\r\nhost: localhost\r\nuser-agent: budget\r\naccept: */*\r\n\r\n".encode()

    def request(self):
        """Sends a request, reads the response, and returns its status."""
        self.connection.sendall(self.message)
        response = b""
        while b"\r\n\r\n" not in response:
            response += receive(self.connection)
        head, _, body = response.partition(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        while len(body) < int(fields[b"content-length"]):
            body += receive(self.connection)
        return int(head.split()[1])


class Http2:
    """A connection of HTTP/2 with one stream at a time."""

    def __init__(self, connection, path):
        self.connection = connection
        self.state = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self.state.initiate_connection()
        # A window that these responses do not use up: the client sends nothing but requests.
        self.state.increment_flow_control_window(1 << 30)
        scheme = "https" if isinstance(connection, ssl.SSLSocket) else "http"
        self.fields = [(":method", "GET"), (":scheme", scheme), (":authority", "localhost"), (":path", path)]
        self.fields += [("user-agent", "budget"), ("accept", "*/*")]

    def request(self):
        """Sends a request, reads the response, and returns its status."""
        self.state.send_headers(self.state.get_next_available_stream_id(), self.fields, end_stream=True)
        status = None
        while True:
            self.connection.sendall(self.state.data_to_send())
            for event in self.state.receive_data(receive(self.connection)):
                if isinstance(event, h2.events.ResponseReceived):
                    status = int(dict(event.headers)[":status"])
                elif isinstance(event, h2.events.StreamEnded):
                    return status


def connect(protocol, port, path):
    """A client of `HTTP/1.1`, `HTTP/1.1 TLS`, `HTTP/2` or `HTTP/2 TLS` on a new connection to this port."""
    tls, http2 = protocol.endswith("TLS"), protocol.startswith("HTTP/2")
    connection = socket.create_connection(("127.0.0.1", port), 60)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if tls:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2" if http2 else "http/1.1"])
        connection = context.wrap_socket(connection)
    return (Http2 if http2 else Http1)(connection, path)
