"""What the dashboard shows of costs that are settled after the response, before the mock, in headless Chromium."""

import unittest

from mock import settled
from page import Page


class Costs(unittest.TestCase):
    setUp, tearDown, opened, asked, comes = Page.setUp, Page.tearDown, Page.opened, Page.asked, Page.comes

    def settling(self, name="per-plan"):
        """This limit settles its costs."""
        gateway = self.server.gateway
        with gateway.lock:
            gateway.limit(name)["settles"] = True
            for column in gateway.columns:
                column["limits"][name] |= settled(column["tally"][name][0])

    def test_without_settled_costs_nothing_is_shown(self):
        browser = self.opened()
        browser.until("document.querySelectorAll('#keys tbody tr').length > 3", "the keys")
        self.assertTrue(browser.run("charts.units.figure.hidden && document.querySelector('#keys-by').hidden"))
        self.assertNotIn("units", browser.text("#limits"))
        self.assertEqual(browser.complaints, [])

    def test_units_stand_beside_requests(self):
        self.settling()
        browser = self.opened()
        browser.until("!charts.units.figure.hidden && charts.units.figure.clientHeight > 40", "the chart")
        names = browser.run("charts.units.curves.map(curve => curve.name)")
        self.assertEqual(names, ["per-plan, units", "per-plan, requests (right)"])
        sums = browser.run("charts.units.curves.map(curve => curve.values.reduce((all, one) => all + one, 0))")
        self.assertEqual(sums[0], 120 * sums[1])
        row = "[...document.querySelectorAll('#limits tbody tr')].find(row => row.innerText.includes('per-plan'))"
        text = browser.until(f"/[0-9,]+ units\\/s, [0-9,.]+ requests\\/s settled/.test({row}?.innerText) && {row}.innerText", "units of the limit")
        self.assertIn("6000/min for each header:x-api-key", text)
        self.assertEqual(browser.complaints, [])

    def test_keys_are_ordered_by_units(self):
        self.settling()
        browser = self.opened()
        row = "[...document.querySelectorAll('#limits tbody tr')].find(row => row.innerText.includes('per-plan'))"
        browser.until(f"{row} && ({row}.querySelector('button').click(), true)", "the limit")
        browser.until("!document.querySelector('#keys-by').hidden && document.querySelector('#keys-by').clientHeight > 10", "the choice of an order")
        self.assertEqual(self.asked("GET /api/v1/limits/per-plan/keys?top=20&by=units"), [])
        browser.run("document.querySelector('#keys-by select').value = 'units'; document.querySelector('#keys-by select').dispatchEvent(new Event('change', { bubbles: true }))")
        browser.until("/tier pro · [0-9,]+ units/.test(document.querySelector('#keys tbody .sub')?.innerText)", "the units of a key")
        self.comes(lambda: self.asked("GET /api/v1/limits/per-plan/keys?top=20&by=units"), "the order by units")
        # The sentence on top still names the key with the most refusals of the worst limit.
        self.assertIn("203.0.113.7", browser.text("#verdict"))

    def test_a_phone_shows_all_of_it(self):
        self.settling()
        browser = self.opened()
        browser.size(360, 740, 1, True)
        row = "[...document.querySelectorAll('#limits tbody tr')].find(row => row.innerText.includes('per-plan'))"
        browser.until(f"{row} && ({row}.querySelector('button').click(), true)", "the limit")
        browser.until("document.querySelector('#keys-by').clientHeight > 10 && !charts.units.figure.hidden", "order and chart")
        self.assertLessEqual(browser.run("document.documentElement.scrollWidth"), 360, "nothing stands out to the right")
        self.assertEqual(browser.stands_out(), [])
        self.assertEqual(browser.cut(), [])

    def test_an_explanation_tells_how_the_cost_is_settled(self):
        self.settling("per-client")
        browser = self.opened()
        browser.until("document.querySelector('#facts').innerText.includes('3f9c2a10')", "the page")
        browser.click("#explain-open")
        browser.run("document.querySelector('#explain-form [name=url]').value = '/search/shoes'")
        browser.click("#explain-form button[type=submit]")
        browser.until("document.querySelector('#explanation').innerText.includes('cost 1 now, settled by json:/usage/total_tokens; 10/s')", "the source")

    def test_debt_is_shown(self):
        self.settling()
        browser = self.opened()
        key = self.server.gateway.keys["per-plan"][1]
        with self.server.gateway.lock:
            key.used = 6000 + 12345.0
        browser.until("document.querySelectorAll('#keys tbody tr').length > 3", "the page")
        browser.run("look('per-plan', '" + key.id + "')")
        browser.until("document.querySelector('#look').open && /^0 \\(1[0-9],[0-9]{3} in debt\\)$/.test(document.querySelector('#look-policies td').innerText)", "the debt")


if __name__ == "__main__":
    unittest.main(verbosity=2)
