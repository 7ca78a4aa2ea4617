#!/usr/bin/env python3
"""The page of --report in headless Chromium: python3 tests/report_page.py ROPEX [SCREENSHOTS]

Drives the browser over its debugging protocol with the standard library alone. Checks that the page logs nothing, that
headings sort by click and by key, that figures show values under the pointer and by arrow keys, that the theme follows the
system and the button, that hostile names stay text, and that no request leaves the page. SCREENSHOTS receives PNG files.
Without Chromium it says so and ends with success.
"""

import base64
import json
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request

BROWSERS = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]
HOSTILE = "</script><script>document.title='broken'</script>.txt"


class Socket:
    """A WebSocket client: text frames, one at a time."""

    def __init__(self, url):
        host, path = url.removeprefix("ws://").split("/", 1)
        name, port = host.split(":")
        self.socket = socket.create_connection((name, int(port)), timeout=300)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(
            f"GET /{path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        head = b""
        while b"\r\n\r\n" not in head:
            head += self.socket.recv(1)
        assert b" 101 " in head.split(b"\r\n")[0], head

    def send(self, text):
        data = text.encode()
        mask = os.urandom(4)
        size = len(data)
        head = bytes([0x81])
        if size < 126:
            head += bytes([0x80 | size])
        elif size < 65536:
            head += bytes([0x80 | 126]) + struct.pack(">H", size)
        else:
            head += bytes([0x80 | 127]) + struct.pack(">Q", size)
        self.socket.sendall(head + mask + bytes(byte ^ mask[i % 4] for i, byte in enumerate(data)))

    def exactly(self, count):
        data = b""
        while len(data) < count:
            part = self.socket.recv(count - len(data))
            if not part:
                raise ConnectionError("the browser closed the connection")
            data += part
        return data

    def receive(self):
        text = b""
        while True:
            first, second = self.exactly(2)
            size = second & 127
            if size == 126:
                size = struct.unpack(">H", self.exactly(2))[0]
            elif size == 127:
                size = struct.unpack(">Q", self.exactly(8))[0]
            text += self.exactly(size)
            if first & 0x80:
                return text.decode()


class Tab:
    """A page of the browser and what it reported."""

    def __init__(self, url):
        self.socket = Socket(url)
        self.count = 0
        self.events = []

    def call(self, method, **parameters):
        self.count += 1
        self.socket.send(json.dumps({"id": self.count, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.socket.receive())
            if message.get("id") == self.count:
                assert "error" not in message, (method, message)
                return message["result"]
            self.events.append(message)

    def wait(self, method):
        while not any(event["method"] == method for event in self.events):
            self.events.append(json.loads(self.socket.receive()))

    def run(self, script):
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def pointer(self, kind, x, y):
        buttons = {"button": "left", "clickCount": 1} if kind != "mouseMoved" else {}
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **buttons)

    def click(self, selector):
        x, y = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: 'center'}});"
            "const r = e.getBoundingClientRect(); return [r.left + r.width / 2, r.top + r.height / 2]; })()"
        )
        self.pointer("mousePressed", x, y)
        self.pointer("mouseReleased", x, y)

    def press(self, key):
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, text="\r" if key == "Enter" else "")
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def screenshot(self, path, selector="h1"):
        """What the window shows with the element at its top."""
        self.run(f"document.querySelector({json.dumps(selector)}).scrollIntoView({{block: 'start'}})")
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))


def start(browser, folder):
    """Starts the browser and returns it with the address of its first tab."""
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-port=0"]
    flags += ["--no-first-run", "--disable-extensions", "--disable-background-networking", "--window-size=1100,1400"]
    process = subprocess.Popen(
        [browser, *flags, f"--user-data-dir={folder}", "about:blank"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    port_file = pathlib.Path(folder) / "DevToolsActivePort"
    for _ in range(600):
        if port_file.exists() and port_file.read_text().strip():
            port = port_file.read_text().split()[0]
            try:
                tabs = json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/json", timeout=10))
            except OSError:
                tabs = []
            for tab in tabs:
                if tab["type"] == "page":
                    return process, tab["webSocketDebuggerUrl"]
        assert process.poll() is None, f"{browser} ended with {process.returncode}"
        time.sleep(0.1)
    process.kill()
    raise TimeoutError(f"{browser} opened no debugging port within a minute")


def check(name, held, detail=""):
    print(f"  {'ok' if held else 'FAILED'}: {name} {detail}".rstrip())
    if not held:
        raise SystemExit(1)


def check_tables(tab):
    """Both pages: a table of numbers sorts as numbers, both ways, by click and by key."""
    cells = (
        "Array.from(document.querySelectorAll('#sorted tbody tr'), row => Number(row.cells[INDEX].textContent"
        ".replaceAll(' ', '')))"
    )
    # The first table with a column of distinct numbers.
    index = tab.run(
        "(() => { for (const table of document.querySelectorAll('table.sortable')) {"
        "const heads = Array.from(table.tHead.rows[0].cells);"
        "for (let i = heads.length - 1; i > 0; i--) {"
        "const values = new Set(Array.from(table.tBodies[0].rows, row => row.cells[i].textContent));"
        "if (heads[i].className === 'n' && values.size > 4) { table.id = 'sorted'; heads[i].firstElementChild.id = 'head';"
        "return i; } } } return -1; })()"
    )
    check("a column of numbers", index >= 0)
    read = cells.replace("INDEX", str(index))
    original = tab.run(read)
    tab.click("#head")
    check("a click sorts", tab.run(read) == sorted(original))
    check("the heading says so", tab.run("document.querySelector('#head').parentElement.ariaSort") == "ascending")
    tab.press("Enter")
    check("a key sorts the other way", tab.run(read) == sorted(original, reverse=True))


def check_figure(tab, name, expected):
    """Values under the pointer, by arrow keys, and none after Escape."""
    x, y = tab.run(
        f"(() => {{ const svg = document.querySelector('#{name} svg'); svg.scrollIntoView({{block: 'center'}});"
        "const r = svg.getBoundingClientRect(); return [r.left + r.width * 0.45, r.top + r.height * 0.5]; })()"
    )
    shown = f"(() => {{ const tip = document.querySelector('#{name} .tip'); return tip.hidden ? '' : tip.innerText; }})()"
    tab.pointer("mouseMoved", x, y)
    text = tab.run(shown)
    check(f"{name} shows values under the pointer", all(part in text for part in expected), repr(text[:90]))
    inside = tab.run(
        f"(() => {{ const t = document.querySelector('#{name} .tip').getBoundingClientRect();"
        f"const f = document.querySelector('#{name}').getBoundingClientRect();"
        "return t.left >= f.left - 1 && t.right <= f.right + 1 && t.top >= f.top - 1 && t.bottom <= f.bottom + 1; })()"
    )
    check(f"{name} shows them inside its frame", inside)
    tab.pointer("mouseMoved", 2, 2)
    check(f"{name} hides them again", tab.run(shown) == "")
    tab.run(f"document.querySelector('#{name}').focus()")
    tab.press("ArrowRight")
    first = tab.run(shown)
    tab.press("ArrowRight")
    check(f"{name} follows the arrow keys", first and tab.run(shown) not in ("", first))
    tab.press("Escape")
    check(f"{name} hides them on Escape", tab.run(shown) == "")


def check_theme(tab):
    ground = "getComputedStyle(document.body).backgroundColor"
    dark, light = "rgb(20, 23, 28)", "rgb(255, 255, 255)"
    for scheme, expected in [("dark", dark), ("light", light)]:
        tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        check(f"the page follows a {scheme} system", tab.run(ground) == expected, tab.run(ground))
    for expected in [light, dark, light]:
        tab.click("#theme")
        name = tab.run("document.getElementById('theme').textContent")
        check(f"the button leads to {name}", tab.run(ground) == expected)


def overlaps(tab):
    """Labels of figures that cover each other or leave their figure."""
    return tab.run(
        "(() => { const found = []; for (const svg of document.querySelectorAll('figure svg')) {"
        "const frame = svg.getBoundingClientRect(); const texts = Array.from(svg.querySelectorAll('text'));"
        "const boxes = texts.filter(t => !t.getAttribute('transform')).map(t => [t.textContent, t.getBoundingClientRect()]);"
        "boxes.forEach(([text, a], i) => {"
        "if (a.left < frame.left - 1 || a.right > frame.right + 1 || a.bottom > frame.bottom + 1) found.push(text + ' is cut');"
        "for (const [other, b] of boxes.slice(i + 1)) {"
        "const [x, y] = [Math.min(a.right, b.right) - Math.max(a.left, b.left), Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top)];"
        "if (x > 1 && y > 5) found.push(svg.parentElement.id + ': ' + text + ' covers ' + other); } }); } return found; })()"
    )


def open_page(tab, path):
    tab.events.clear()
    tab.call("Page.navigate", url=path.as_uri())
    tab.wait("Page.loadEventFired")


def check_quiet(tab, path):
    """Nothing was logged and nothing but the page itself was asked for."""
    loud = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
    logged = [event for event in tab.events if event["method"] in loud]
    check("no message on the console", not logged, str(logged)[:300] if logged else "")
    asked = [e["params"]["request"]["url"] for e in tab.events if e["method"] == "Network.requestWillBeSent"]
    foreign = [url for url in asked if url != path.as_uri() and not url.startswith("data:")]
    check("no request but for the page", not foreign, str(foreign)[:300] if foreign else "")


def main():
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    browser = next((found for found in map(shutil.which, BROWSERS) if found), None)
    if browser is None:
        print(f"skipped: none of {', '.join(BROWSERS)} is installed")
        return
    ropex = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        folder = pathlib.Path(folder)
        shots = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else folder
        shots.mkdir(parents=True, exist_ok=True)
        figures, measured = folder / "figures.html", folder / "measured.html"
        subprocess.run([ropex, "plot", "all", "--report", figures, "--quiet"], check=True, stdout=subprocess.DEVNULL)
        inspected = [ropex, "inspect", "--report", measured, "--quiet"]
        subprocess.run(inspected, check=True, stdout=subprocess.DEVNULL)
        hostile = folder / "hostile.json"
        curve = {"positions": [256, 512, 1024], "ppl": [9.5, 8.25, 30.0]}
        rope = {"scaling": {"value": HOSTILE}, "original_context": {"value": 512}}
        hostile.write_text(json.dumps({"schema": "ropex.ppl/1", "rope": rope, "result": {"curve": curve}}))
        broken = folder / "hostile.html"
        subprocess.run([ropex, "plot", hostile, "--report", broken, "--quiet"], check=True, stdout=subprocess.DEVNULL)
        process, address = start(browser, folder / "profile")
        try:
            tab = Tab(address)
            for domain in ["Page", "Runtime", "Log", "Network"]:
                tab.call(f"{domain}.enable")
            print("plot all")
            open_page(tab, figures)
            check("eight figures", tab.run("document.querySelectorAll('figure svg').length") == 8)
            found = overlaps(tab)
            check("no label covers another or is cut", not found, "; ".join(found[:6]))
            check_figure(tab, "wavelength", ["pair", "none"])
            check_figure(tab, "angles", ["position", "cos(angle)"])
            for scheme in ["light", "dark"]:
                tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
                for figure in ["pair", "angles", "wavelength"]:
                    tab.screenshot(shots / f"{figure}-{scheme}.png", f"#{figure}")
            check_quiet(tab, figures)
            print("inspect")
            open_page(tab, measured)
            check_tables(tab)
            check_theme(tab)
            tab.screenshot(shots / "inspect.png")
            raw = tab.run(
                "(() => { const d = document.getElementById('raw'); d.open = true; return new Promise(done => setTimeout("
                "() => done(JSON.parse(d.querySelector('pre').textContent).schema), 100)); })()"
            )
            check("the JSON unfolds", raw == "ropex.inspect/1", str(raw))
            check_quiet(tab, measured)
            print("hostile names")
            open_page(tab, broken)
            check("hostile names stay text", tab.run("document.title") == "ropex plot", tab.run("document.title"))
            check_figure(tab, "ppl-curve", [HOSTILE, "8.25"])
            tab.screenshot(shots / "hostile.png")
            check_quiet(tab, broken)
        finally:
            process.kill()
            process.wait()
    print("the page holds")


if __name__ == "__main__":
    main()
