"""Bodies of samples: made up, in the shape that each provider documents.

`{id}` becomes a fresh id and `{now}` the instant in Unix seconds, so that two samples
are two events.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["EVENTS", "FALLBACK"]

EVENTS: Final[Mapping[str, Mapping[str, str]]] = {
    "stripe": {
        "invoice.paid": '{"id":"evt_{id}","object":"event","type":"invoice.paid",'
        '"created":{now},"data":{"object":{"id":"in_{id}","object":"invoice",'
        '"amount_paid":1200,"currency":"eur","status":"paid"}}}',
        "checkout.session.completed": '{"id":"evt_{id}","object":"event",'
        '"type":"checkout.session.completed","created":{now},"data":{"object":'
        '{"id":"cs_{id}","object":"checkout.session","payment_status":"paid"}}}',
    },
    "github": {
        "push": '{"ref":"refs/heads/main","after":"{id}","repository":{"id":1,'
        '"full_name":"octo/example"},"commits":[]}',
        "issues.opened": '{"action":"opened","issue":{"number":1,"title":"A sample",'
        '"user":{"login":"octo"}},"repository":{"id":1,"full_name":"octo/example"}}',
        "ping": '{"zen":"Keep it simple.","hook_id":1}',
    },
    "gitlab": {"push": '{"object_kind":"push","checkout_sha":"{id}","commits":[]}'},
    "shopify": {
        "orders/create": '{"id":1,"name":"#1001","total_price":"12.00","note":"{id}"}'
    },
    "slack": {
        "app_mention": '{"type":"event_callback","event_id":"Ev{id}",'
        '"event_time":{now},"event":{"type":"app_mention","text":"hello"}}'
    },
    "twilio": {"delivered": "MessageSid=SM{id}&MessageStatus=delivered&To=%2B15550001"},
    "mailgun": {"opened": '{"event":"opened","id":"{id}","recipient":"a@example.com"}'},
    "sendgrid": {
        "delivered": '[{"event":"delivered","sg_event_id":"{id}","timestamp":{now}}]'
    },
    "square": {
        "payment.updated": '{"type":"payment.updated","event_id":"{id}","data":{}}'
    },
    "zendesk": {
        "zen:event-type:ticket.created": '{"type":"zen:event-type:ticket.created",'
        '"id":"{id}","detail":{"subject":"A sample"}}'
    },
    "linear": {
        "Issue.create": '{"action":"create","type":"Issue","data":{"id":"{id}"},'
        '"webhookTimestamp":{now}000}'
    },
    "discord": {
        "APPLICATION_AUTHORIZED": '{"type":1,"event":{"type":"APPLICATION_AUTHORIZED",'
        '"timestamp":"{now}"},"id":"{id}"}'
    },
    "meta": {"page": '{"object":"page","entry":[{"id":"{id}","time":{now}}]}'},
    "x": {"tweet": '{"for_user_id":"1","tweet_create_events":[{"id_str":"{id}"}]}'},
}
"""Events of each preset by their own names, and a body of each."""

FALLBACK: Final = (
    '{"type":"{event}","id":"{id}","webhookTimestamp":{now}000,"data":{"sample":true}}'
)
"""The body of any other event."""
